"""Serving over streamable HTTP: on this machine only, to whoever has the token."""

import asyncio
import hmac
import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import Mapping

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import UnsupportedProtocolVersionErrorData
from mcp_types.jsonrpc import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.serving.desk import Desk
from agent.serving.server import SESSION_HEADER
from tasks.errors import UsageError

PATH = "/mcp"
VERSION_HEADER = "mcp-protocol-version"
TOKEN_NAME = "KERNELWRIGHT_TOKEN"
IDLE_S = 24 * 3600.0
"""How long a client may be silent before its session is forgotten; an agent may think for long between two calls."""
LEAVING_S = 2
"""How long open streams may last once the server is told to stop."""


def serve_http(server: "Server[None]", desk: Desk, host: str, port: int) -> None:
    """Serve until a signal; tells on standard error where, and with which token.

    Args:
        server: which closes the desk at its end.
        desk: hears which sessions were ended by their clients.
        host: a loopback address.
        port: 0 for any that is free.

    Raises:
        UsageError: the host is not this machine's own, or the port is taken.
    """
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    token, made = token_from(os.environ)
    name = f"[{host}]" if ":" in host else host
    served = server.streamable_http_app(
        streamable_http_path=PATH, session_idle_timeout=IDLE_S, transport_security=_only(name)
    )
    config = uvicorn.Config(Guard(served, token, desk), log_config=None, timeout_graceful_shutdown=LEAVING_S)
    print(f"kernelwright: serving MCP at http://{name}:{port}{PATH}", file=sys.stderr)
    told = f"token: {token}" if made else f"the token is that of {TOKEN_NAME}"
    print(f"kernelwright: {told}", file=sys.stderr, flush=True)
    with listening:
        asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


def token_from(environment: Mapping[str, str]) -> tuple[str, bool]:
    """The token that clients must show, and whether it was made here."""
    given = environment.get(TOKEN_NAME, "")
    return (given, False) if given else (secrets.token_urlsafe(32), True)


class Guard:
    """Lets requests through that show the token and are of a version with sessions, which tell the rollouts of several
    clients apart; tells the desk when a client ends its session."""

    def __init__(self, app: ASGIApp, token: str, desk: Desk) -> None:
        self._app = app
        self._expected = b"Bearer " + os.fsencode(token)
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # Nothing here speaks anything else; the token could not be asked for.
            await send({"type": "websocket.close"})
            return
        request = Request(scope)
        # Starlette reads bytes as Latin-1.
        shown = request.headers.get("authorization", "").encode("latin-1")
        if not hmac.compare_digest(shown, self._expected):
            await _refused()(scope, receive, send)
            return
        asked = request.headers.get(VERSION_HEADER)
        if asked is not None and asked not in HANDSHAKE_PROTOCOL_VERSIONS:
            await _wants_session(asked)(scope, receive, send)
            return
        await self._app(scope, receive, send)
        session = request.headers.get(SESSION_HEADER)
        if request.method == "DELETE" and session is not None:
            self._desk.leave(session)


def _wants_session(asked: str) -> JSONResponse:
    """Tells a client of a version without sessions which versions there are; clients then take one of those."""
    data = UnsupportedProtocolVersionErrorData(supported=list(HANDSHAKE_PROTOCOL_VERSIONS), requested=asked)
    said = "this server keeps a rollout for each session; take a version of the protocol that has sessions"
    error = {"code": UNSUPPORTED_PROTOCOL_VERSION, "message": said, "data": data.model_dump(mode="json")}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status_code=400)


def _refused() -> JSONResponse:
    said = f"Send the header `Authorization: Bearer TOKEN`. The server printed its token, or has it from {TOKEN_NAME}."
    return JSONResponse({"error": said}, status_code=401, headers={"www-authenticate": "Bearer"})


def _listen(host: str, port: int) -> socket.socket:
    if not _is_loopback(host):
        raise UsageError(
            f"--host {host} is no loopback address. Whoever reaches the server has this machine build and run code, so "
            "it listens on 127.0.0.1, ::1 or localhost only; reach it from elsewhere through an SSH tunnel."
        )
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
        )
    except OSError as error:
        raise UsageError(f"{host}:{port} cannot be listened on ({error.strerror}). Choose another --port.") from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _only(name: str) -> TransportSecuritySettings:
    """Answers only requests that were meant for this machine: a page in a browser can have its name resolve to here."""
    names = {name, "127.0.0.1", "localhost", "[::1]"}
    return TransportSecuritySettings(
        allowed_hosts=[f"{each}:*" for each in names], allowed_origins=[f"http://{each}:*" for each in names]
    )

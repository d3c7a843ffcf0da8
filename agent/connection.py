"""A connection to a model's server for one request, whose answer may be neither endless nor packed."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import TypeVar

import httpx2
import openai

from agent.interruption import begun
from agent.server_faults import no_reply

MOST_ANSWER_BYTES = 128 * 2**20
"""Of one answer; a stream takes a few hundred bytes for a token."""
GRACE_S = 1.0
"""After a deadline, for what notices it itself and can say more."""
LATE = "the time was up before the answer's end"

Result = TypeVar("Result")


def connect(api_key: str, base_url: str, deadline: float) -> openai.OpenAI:
    """A connection that ends at a deadline of the monotonic clock, however slowly an answer drips. A context manager.

    For one request: until the next one tools work for minutes, and a connection that a server or a router has dropped
    meanwhile would fail it. It retries nothing, so that each retry is in the transcript.
    """

    def bound(response: httpx2.Response) -> None:
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        if packed not in ("", "identity"):
            # A few packed bytes can fill the memory.
            raise httpx2.DecodingError(f"the answer is packed as {packed[:20]!r}, which was not asked for")
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _Bounded(response.stream, response.request, deadline)

    return openai.OpenAI(
        api_key=api_key,
        base_url=base_url,
        max_retries=0,
        default_headers={"accept-encoding": "identity"},
        http_client=openai.DefaultHttpxClient(event_hooks={"response": [bound]}),
    )


def in_time(call: Callable[[], Result], deadline: float) -> Result:
    """The result of a call, or what it raised; a ServerFault if it takes until a deadline of the monotonic clock.

    It is made in a thread of its own, because nothing else ends the waiting for a server that drips its headers.
    """
    future = begun(call)
    wait((future,), max(0.0, deadline - time.monotonic()) + GRACE_S)
    if not future.done():
        raise no_reply(LATE)
    return future.result()


class _Bounded(httpx2.SyncByteStream):
    """The bytes of an answer, as long as there is time for them and they are not too many."""

    def __init__(self, stream: httpx2.SyncByteStream, request: httpx2.Request, deadline: float) -> None:
        self._stream = stream
        self._request = request
        self._deadline = deadline

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._stream:
            size += len(part)
            if time.monotonic() >= self._deadline:
                raise httpx2.ReadTimeout(LATE, request=self._request)
            if size > MOST_ANSWER_BYTES:
                raise httpx2.DecodingError(f"an answer of over {MOST_ANSWER_BYTES} bytes", request=self._request)
            yield part

    def close(self) -> None:
        self._stream.close()

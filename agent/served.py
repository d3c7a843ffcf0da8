"""A model behind a server that speaks OpenAI's Chat Completions or Responses."""

import json
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from typing import Protocol, cast

import httpx2
import openai
from pydantic import JsonValue
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    wait_exponential_jitter,
)

from agent.address import without_secrets
from agent.chat_form import ChatForm
from agent.connection import connect, in_time
from agent.counting import TokenCounts
from agent.manner import Manner, correction
from agent.model import (
    AddressError,
    ContextOverflowError,
    KeyRefusedError,
    Message,
    ModelReply,
    Patience,
    QuotaError,
    Retry,
    ToolDefinition,
    WaitingStoppedError,
)
from agent.provider_json import JsonObject, object_of, well_formed, without_text
from agent.responses_form import ResponsesForm
from agent.server_faults import Kind, ServerFault, fault_of, no_reply
from runs.apis import Api
from runs.config import ModelOptions
from tasks.errors import ModelServerError

MOST_ATTEMPTS = 14
"""Of sending one request, which takes half an hour of waiting; sending it again corrected does not count."""
REQUEST_TIMEOUT_S = 1800.0
"""For one request, or one part of a stream: at ten tokens a second a server needs this for 18,000."""
CONNECT_TIMEOUT_S = 20.0
MOST_WAITING_S = 3600.0
"""For all attempts at one reply together, where the rollout has no time limit of its own."""

HIDDEN = "(the key)"
"""Stands for the key in whatever the server says."""
LEAST_SECRET = 16
"""Characters of a key that is one: servers of one's own are given words such as `none`, which replies may hold."""
OPENAI_URL = "https://api.openai.com/v1"

_BACKOFF = wait_exponential_jitter(initial=1.0, max=300.0)


class Form(Protocol):
    """One of the interfaces that servers speak."""

    path: str

    def body(
        self, model: str, messages: Sequence[Message], tools: Sequence[ToolDefinition], manner: Manner
    ) -> JsonObject:
        """The body of a request."""
        ...

    def assemble(self, events: Iterable[JsonObject]) -> JsonObject:
        """The answer that a stream's events amount to; raises ServerFault where it breaks off."""
        ...

    def reply(self, answer: JsonObject) -> ModelReply:
        """The reply in an answer; raises ServerFault where there is none."""
        ...


class ServedModel:
    """A client for one model on one server. What the server refuses of a request is avoided from then on."""

    def __init__(self, model: str, api_key: str, base_url: str | None, options: ModelOptions) -> None:
        self._model = model
        self._manner = Manner(options)
        self._counts = TokenCounts()
        self._form: Form = ResponsesForm() if options.api is Api.RESPONSES else ChatForm()
        self._api_key = api_key
        self._base_url = base_url or OPENAI_URL
        self._where = f"{model} at {without_secrets(self._base_url)}"

    @property
    def name(self) -> str:
        """The model's name on its server."""
        return self._model

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:
        """One reply; passing faults of the server are waited out, as far as patience allows."""
        deadline = time.monotonic() + (MOST_WAITING_S if patience.seconds is None else patience.seconds)
        stopping = patience.stopping or threading.Event()
        corrections = 0

        def pause(wait_s: float) -> None:
            stopping.wait(wait_s)

        def attempt() -> ModelReply:
            nonlocal corrections
            if stopping.is_set():
                raise WaitingStoppedError(f"Stopped while waiting for {self._where}.")
            body = object_of(well_formed(self._form.body(self._model, messages, tools, self._manner)))
            try:
                answer = in_time(lambda: self._answer(body, deadline), deadline)
                return self._counts.check(body, self._form.reply(answer))
            except ServerFault as fault:
                if better := correction(self._manner, body, fault):
                    self._manner, fault.corrected = better.manner, better.said
                    corrections += 1
                raise

        retrying = Retrying(
            retry=retry_if_exception(_worth_another),
            wait=_wait_s,
            sleep=pause,
            stop=lambda state: (
                state.attempt_number - corrections >= MOST_ATTEMPTS
                or (state.upcoming_sleep > 0 and time.monotonic() + state.upcoming_sleep >= deadline)
            ),
            before_sleep=lambda state: patience.on_retry(_retry(state)),
            reraise=True,
        )
        try:
            return retrying(attempt)
        except ServerFault as fault:
            raise self._for_good(fault, deadline - time.monotonic()) from fault

    def _answer(self, body: JsonObject, deadline: float) -> JsonObject:
        """Send one request and receive all of its answer; the one place where foreign errors become faults."""
        try:
            if not body.get("stream"):
                return self._clean(self._whole(body, deadline))
            with closing(self._events(body, deadline)) as events:
                return self._clean(self._form.assemble(events))
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            fault = fault_of(error)
        except ServerFault as error:
            fault = error
        # Not `from error`, which may hold the key.
        fault.text = str(self._without_key(fault.text))
        raise fault

    def _clean(self, answer: JsonObject) -> JsonObject:
        return object_of(self._without_key(well_formed(answer)))

    def _without_key(self, said: JsonValue) -> JsonValue:
        """What a server said, as it can be stored: it may say anything, the key that it was sent too."""
        return without_text(said, self._api_key, HIDDEN) if len(self._api_key) >= LEAST_SECRET else said

    def _whole(self, body: JsonObject, deadline: float) -> JsonObject:
        try:
            with connect(self._api_key, self._base_url, deadline) as connection:
                # The SDK does not check what came back: text where the server sent no JSON, anything where it did.
                answer = connection.post(
                    self._form.path, cast_to=object, body=body, options={"timeout": _timeout(deadline)}
                )
        except json.JSONDecodeError as error:
            raise self._something_else(error.doc) from error
        except (ValueError, RecursionError) as error:
            raise no_reply(f"its answer cannot be read: {error}") from error
        if not isinstance(answer, dict):
            raise self._something_else(str(answer))
        return cast(JsonObject, answer)

    def _events(self, body: JsonObject, deadline: float) -> Generator[JsonObject]:
        with (
            connect(self._api_key, self._base_url, deadline) as connection,
            connection.post(
                self._form.path,
                cast_to=object,
                body=body,
                options={"timeout": _timeout(deadline)},
                stream=True,
                stream_cls=openai.Stream[object],
            ) as stream,
        ):
            if "text/event-stream" not in stream.response.headers.get("content-type", "text/event-stream"):
                raise self._something_else(stream.response.read().decode(errors="replace"))
            try:
                for event in stream:
                    if time.monotonic() >= deadline:
                        raise no_reply("the reply was still streaming when the time was up")
                    if isinstance(event, dict):
                        yield cast(JsonObject, event)
            except json.JSONDecodeError as error:
                raise no_reply(f"the stream held something other than JSON: {error.doc[:200]!r}") from error
            except (ValueError, RecursionError) as error:
                raise no_reply(f"the stream cannot be read: {error}") from error

    def _something_else(self, answer: str) -> ServerFault:
        text = f"it answered with something that is no reply: {answer[:200]!r}"
        return ServerFault(text, Kind.ADDRESS)

    def _for_good(self, fault: ServerFault, left_s: float) -> ModelServerError:
        """The error that a fault ends in when it will not be tried again."""
        text = fault.text
        match fault.kind:
            case Kind.TOO_LONG:
                return ContextOverflowError(f"The conversation is too long for {self._where}: {text}")
            case Kind.KEY:
                return KeyRefusedError(
                    f"{self._where} refused the key: {text}. Set OPENAI_API_KEY to a key that may use it."
                )
            case Kind.ADDRESS:
                return AddressError(
                    f"{self._where} was not found: {text}. Check --model, --api and --base-url, which usually ends "
                    "in /v1."
                )
            case Kind.QUOTA:
                return QuotaError(
                    f"The account's quota for {self._where} is used up: {text}. Waiting does not help; add credit."
                )
            case Kind.REFUSED:
                return ModelServerError(f"{self._where} refused the request: {text}")
        if fault.retry_after_s > left_s:
            return ModelServerError(
                f"{self._where} asks to wait {fault.retry_after_s:.0f} s, and {max(0.0, left_s):.0f} s are left: {text}"
            )
        return ModelServerError(f"{self._where} failed: {text}. Check --base-url and the network if nothing answers.")


def _timeout(deadline: float) -> openai.Timeout:
    left_s = max(1.0, min(REQUEST_TIMEOUT_S, deadline - time.monotonic()))
    return openai.Timeout(left_s, connect=min(CONNECT_TIMEOUT_S, left_s))


def _worth_another(error: BaseException) -> bool:
    return isinstance(error, ServerFault) and (error.kind is Kind.PASSING or bool(error.corrected))


def _wait_s(state: RetryCallState) -> float:
    """The longer of what the server asks for and what backing off takes; nothing before a corrected request."""
    fault = _fault(state)
    if fault is None or fault.corrected:
        return 0.0
    return max(fault.retry_after_s, _BACKOFF(state))


def _retry(state: RetryCallState) -> Retry:
    fault = _fault(state)
    assert fault is not None
    said = f"{fault.text}; sent again {fault.corrected}" if fault.corrected else fault.text
    return Retry(attempt=state.attempt_number, error=said, wait_s=state.upcoming_sleep)


def _fault(state: RetryCallState) -> ServerFault | None:
    error = state.outcome.exception() if state.outcome is not None else None
    return error if isinstance(error, ServerFault) else None

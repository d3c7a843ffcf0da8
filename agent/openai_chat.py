"""A model behind a server that speaks OpenAI Chat Completions with tool calls."""

import json
import re
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import cast

import openai
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam, ChatCompletionToolParam
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_any,
    stop_before_delay,
    wait_exponential_jitter,
)

from agent.chat_form import reply_from, request_messages
from agent.model import ContextOverflowError, Message, ModelReply, Patience, Retry, ToolDefinition
from tasks.errors import ModelServerError

MOST_ATTEMPTS = 8
REQUEST_TIMEOUT_S = 600.0
"""For one request; a reasoning model may think for minutes."""
MOST_WAITING_S = 3600.0
"""For all attempts at one reply together, where the rollout has no time limit of its own."""

_BACKOFF = wait_exponential_jitter(initial=1.0, max=60.0)
_TOO_LONG = re.compile(r"context[ _](length|window|size)|maximum context|too many tokens|prompt is too long", re.I)


class OpenAIChat:
    """A client for one model on one server."""

    def __init__(self, model: str, api_key: str, base_url: str | None = None) -> None:
        self._model = model
        self._send_reasoning = True
        # All retrying is done here, so that each retry is in the transcript and none is multiplied.
        self._client = openai.OpenAI(api_key=api_key, base_url=base_url, max_retries=0)

    @property
    def name(self) -> str:
        """The model's name on its server."""
        return self._model

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:
        """One reply; passing faults of the server are waited out, as far as patience allows."""
        began = time.monotonic()
        patience_s = MOST_WAITING_S if patience.seconds is None else patience.seconds

        def attempt() -> ModelReply:
            left_s = patience_s - (time.monotonic() - began)
            return self._request(messages, tools, timeout=max(1.0, min(REQUEST_TIMEOUT_S, left_s)))

        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            wait=_wait_s,
            stop=stop_any(stop_after_attempt(MOST_ATTEMPTS), stop_before_delay(patience_s)),
            before_sleep=lambda state: patience.on_retry(_retry(state)),
            reraise=True,
        )
        try:
            return retrying(attempt)
        except openai.OpenAIError as error:
            raise self._for_good(error) from error

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], timeout: float) -> ModelReply:
        try:
            return self._request_once(messages, tools, timeout)
        except openai.BadRequestError as error:
            # Some servers demand their reasoning back and some refuse it; nothing but trying tells which.
            if "reasoning" not in str(error) or not self._send_reasoning:
                raise
            self._send_reasoning = False
            return self._request_once(messages, tools, timeout)

    def _request_once(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], timeout: float) -> ModelReply:
        try:
            # The SDK does not check what came back: text where the server sent no JSON, anything where it did.
            answer: object = self._client.chat.completions.create(
                model=self._model,
                messages=cast("list[ChatCompletionMessageParam]", request_messages(messages, self._send_reasoning)),
                tools=cast("list[ChatCompletionToolParam]", list(tools)),
                timeout=timeout,
            )
        except json.JSONDecodeError as error:
            raise self._no_completion(error.doc) from error
        if not isinstance(answer, ChatCompletion):
            raise self._no_completion(str(answer))
        return reply_from(answer)

    def _no_completion(self, answer: str) -> ModelServerError:
        return ModelServerError(
            f"The server at {self._client.base_url} answered with something other than a chat completion: "
            f"{answer[:200]!r}. Check --base-url; it usually ends in /v1."
        )

    def _for_good(self, error: openai.OpenAIError) -> ModelServerError:
        """The one place where the SDK's errors become ours."""
        where = f"{self._model} at {self._client.base_url}"
        text = _describe(error)
        if isinstance(error, openai.BadRequestError) and (
            error.code == "context_length_exceeded" or _TOO_LONG.search(str(error))
        ):
            return ContextOverflowError(f"The conversation is too long for {where}: {text}")
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            return ModelServerError(f"{where} refused the key: {text}. Set OPENAI_API_KEY to a key that may use it.")
        if isinstance(error, openai.NotFoundError):
            return ModelServerError(f"{where} was not found: {text}. Check --model and --base-url.")
        if _out_of_quota(error):
            return ModelServerError(f"The account's quota for {where} is used up: {text}. Waiting does not help.")
        if isinstance(error, openai.APIConnectionError):
            return ModelServerError(f"No answer from {where}: {text}. Check --base-url and the network.")
        return ModelServerError(f"{where} failed: {text}")


def _may_pass(error: BaseException) -> bool:
    """Whether trying again can help."""
    if isinstance(error, openai.RateLimitError):
        return not _out_of_quota(error)
    return isinstance(error, openai.APIConnectionError | openai.InternalServerError)


def _out_of_quota(error: BaseException) -> bool:
    return isinstance(error, openai.RateLimitError) and "insufficient_quota" in (error.code, error.type)


def _wait_s(state: RetryCallState) -> float:
    """The longer of what the server asks for and what backing off takes."""
    error = _error_of(state)
    asked = _retry_after_s(error) if isinstance(error, openai.APIStatusError) else 0.0
    return max(asked, _BACKOFF(state))


def _retry_after_s(error: openai.APIStatusError) -> float:
    """The Retry-After header in seconds, whichever of its forms it has; 0 without one."""
    headers = error.response.headers
    for name, seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers.get(name, "")) * seconds)
        except ValueError:
            continue
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except ValueError:
        return 0.0


def _retry(state: RetryCallState) -> Retry:
    error = _error_of(state)
    return Retry(attempt=state.attempt_number, error=_describe(error), wait_s=state.upcoming_sleep)


def _error_of(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None


def _describe(error: BaseException | None) -> str:
    """The error with the cause that the SDK's own text hides, for example why a connection failed."""
    cause = error.__cause__ if error is not None else None
    text = f"{type(error).__name__}: {error}"
    return f"{text} ({type(cause).__name__}: {cause})" if cause is not None else text

"""What went wrong at a model's server, in one form, wherever it was said: status, body, stream or socket."""

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum

import httpx2
import openai
from pydantic import JsonValue

from agent.provider_json import object_of, text_of


class Kind(Enum):
    """What can be done about a fault."""

    PASSING = "passing"
    """Wait and send the same again."""
    TOO_LONG = "too long"
    """Send a shorter conversation."""
    QUOTA = "quota"
    KEY = "key"
    ADDRESS = "address"
    REFUSED = "refused"
    """The request itself is not accepted as it is."""


MOST_TEXT = 1000
"""Characters of what a server said that are kept: some answer with whole pages."""


class ServerFault(Exception):
    """A request that got no usable reply."""

    def __init__(self, text: str, kind: Kind, *, param: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.text = text[:MOST_TEXT]
        self.kind = kind
        self.param = param
        """The field of the request that the server names, where it names one."""
        self.retry_after_s = retry_after_s
        """How long the server asks to wait; 0 where it does not say."""
        self.corrected = ""
        """What will be different when the request is sent again at once."""


_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size|limit|is full)|maximum (context|prompt|model) length"
    r"|(prompt|input|conversation|request|message)s? (is|are) too (long|large)|input.{0,40}longer than the model"
    r"|exceed\w* (the )?maximum number of tokens|model token limit"
    r"|reduce the length of the (messages|prompt|input)|input or output tokens must be reduced"
    r"|inputs` (tokens|must have less)|exceed_context_size|string_above_max_length|prompt contains \d+ tokens"
    r"|too many tokens",
    re.IGNORECASE,
)
"""As OpenAI, vLLM, SGLang, llama.cpp, Ollama, LM Studio, TGI, Anthropic, Gemini, Bedrock, Mistral and xAI word it."""
_NEVER_FITS = re.compile(r"input or output tokens must be reduced|request too large", re.IGNORECASE)
"""Of a rate limit that one request alone exceeds: waiting does not help, a shorter request does."""
_QUOTA_CODES = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance")
_REFUSAL_CODES = re.compile(r"invalid|unsupported|bad.?request|policy|not_found|mismatch", re.IGNORECASE)
_TRY_AGAIN = re.compile(
    r"(?:try again|retry) (?:in|after) (?:(\d{1,9})h)?\s*(?:(\d{1,9})m(?!s))?\s*"
    r"(?:(\d{1,9}(?:\.\d+)?)\s*(ms|s\b|sec))?|"
    r"retryDelay\W+(\d{1,9}(?:\.\d+)?)s",
    re.IGNORECASE,
)


def fault_of(error: openai.OpenAIError | httpx2.HTTPError) -> ServerFault:
    """The fault behind an exception of the SDK or of its HTTP library."""
    text = _describe(error)
    if isinstance(error, openai.APIStatusError):
        kind = _kind(error.status_code, f"{error.code} {error.type}", text)
        asked = _retry_after_s(error.response.headers) or _asked_in_words(text)
        return ServerFault(text, kind, param=error.param or "", retry_after_s=asked)
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return ServerFault(f"{text} With --stream a slow reply does not time out.", Kind.PASSING)
    if isinstance(error, openai.APIConnectionError | httpx2.HTTPError):
        return ServerFault(text, Kind.PASSING)
    if isinstance(error, openai.APIError):
        # The SDK raises its base class for an error that arrives in the middle of a stream.
        return fault_in_body(error.body if isinstance(error.body, dict) else {"message": f"{error} {error.body}"})
    return ServerFault(text, Kind.REFUSED)


def fault_in_body(error: JsonValue) -> ServerFault:
    """The fault in an answer that was announced as a success: `{"code": ..., "message": ...}` or a text."""
    fields = object_of(error) or {"message": error}
    code = fields.get("code") if fields.get("code") is not None else fields.get("type")
    said = text_of(fields.get("message")) or str(error)
    text = f"{code}: {said}" if code is not None else said
    status = int(str(code)) if re.fullmatch("[0-9]{3}", str(code)) else None
    names = f"{fields.get('code')} {fields.get('type')}"
    if status is None and _REFUSAL_CODES.search(names):
        status = 400
    kind, param = _kind(status, names, text), text_of(fields.get("param"))
    return ServerFault(text, kind, param=param, retry_after_s=_asked_in_words(text))


def no_reply(what: str) -> ServerFault:
    """The fault of a server that ended an exchange without a reply or an error."""
    return ServerFault(what, Kind.PASSING)


def _kind(status: int | None, codes: str, text: str) -> Kind:
    """What can be done, from the HTTP status (None for an error in a body without one) and what was said."""
    if any(code in codes.lower() for code in _QUOTA_CODES) or "insufficient_quota" in text or status == 402:
        return Kind.QUOTA
    limited = status == 429 or "rate_limit" in codes
    too_long = "context_length" in codes or status == 413 or _TOO_LONG.search(text)
    if _NEVER_FITS.search(text) if limited else too_long:
        return Kind.TOO_LONG
    if limited or status is None or status in (408, 409, 425) or status >= 500:
        return Kind.PASSING
    if status in (401, 403):
        return Kind.KEY
    return Kind.ADDRESS if status in (404, 405) else Kind.REFUSED


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """What the headers ask to wait, whichever of the forms they have; 0 without any."""
    for name, seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            asked = float(headers.get(name, "")) * seconds
        except ValueError:
            continue
        if math.isfinite(asked):
            return max(0.0, asked)
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except ValueError:
        return 0.0


def _asked_in_words(text: str) -> float:
    """What the text asks to wait ("try again in 1m30.5s"): an error inside a body has no headers."""
    found = _TRY_AGAIN.search(text)
    if found is None:
        return 0.0
    hours, minutes, amount, unit, delay = found.groups(default="0")
    seconds = float(amount) * (0.001 if unit == "ms" else 1.0)
    return 3600.0 * int(hours) + 60.0 * int(minutes) + seconds + float(delay)


def _describe(error: BaseException) -> str:
    """The error with the cause that the SDK's own text hides, for example why a connection failed."""
    cause = error.__cause__
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, openai.APIStatusError) and str(error) == f"Error code: {error.status_code}":
        # The SDK's text leaves out a body that is not in OpenAI's form.
        text = f"{text} - {error.response.text}"
    return f"{text} ({type(cause).__name__}: {cause})" if cause is not None else text

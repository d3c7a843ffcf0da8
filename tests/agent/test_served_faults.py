"""Tests of what a client does when its server misbehaves: waiting, giving up, and saying whose fault it was."""

import threading
import time
from email.utils import formatdate

import pytest
from model_server import (
    MESSAGES,
    Answer,
    ModelServer,
    completion,
    error,
    patience,
    response,
    running_server,
    said,
)

from agent import served
from agent.model import (
    AddressError,
    ContextOverflowError,
    KeyRefusedError,
    Patience,
    QuotaError,
    Retry,
    WaitingStoppedError,
)
from agent.served import ServedModel
from runs.config import ModelOptions
from tasks.errors import ModelServerError

pytestmark = pytest.mark.server
server = running_server

GOOD = {"chat": completion({"content": "x"}), "responses": response(said("x"))}
both = pytest.mark.parametrize("api", list(GOOD))


@both
def test_retry_waits_as_long_as_the_server_asks(server: ModelServer, api: str) -> None:
    server.script = [error(429, retry_after="1"), GOOD[api]]
    waiting, retries = patience()
    assert server.client(api=api).query(MESSAGES, [], waiting).text == "x"
    assert server.arrivals[1] - server.arrivals[0] >= 1.0
    assert [(retry.attempt, retry.wait_s) for retry in retries] == [(1, 1.0)]
    assert "429" in retries[0].error


def test_retry_after_a_date(server: ModelServer) -> None:
    server.script = [error(503, retry_after=formatdate(time.time() + 2, usegmt=True)), completion({"content": "x"})]
    waiting, retries = patience()
    server.client().query(MESSAGES, [], waiting)
    assert retries[0].wait_s <= 2.0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error(429, retry_after="300"), 300.0),
        (error(429, retry_after_ms="250000"), 250.0),
        (error(429, retry_after="soon", message="Please try again in 1m30.5s."), 90.5),
        (error(429, message="Please try again in 2h5m."), 7500.0),
        (error(429, message='{"@type": "RetryInfo", "retryDelay": "34s"}'), 34.0),
        (error(429, retry_after="inf", message="Retry after 40 seconds."), 40.0),
    ],
)
def test_what_the_server_asks_to_wait_in_all_its_forms(server: ModelServer, answer: Answer, expected: float) -> None:
    """The SDK would not wait for more than two minutes; a day's run does."""
    server.script = [answer]
    stopping = threading.Event()
    waits: list[float] = []

    def note(retry: Retry) -> None:
        waits.append(retry.wait_s)
        stopping.set()

    with pytest.raises(WaitingStoppedError):
        server.client().query(MESSAGES, [], Patience(seconds=100_000.0, on_retry=note, stopping=stopping))
    assert waits == [expected]
    assert len(server.requests) == 1


def test_waiting_that_does_not_fit_into_the_time_left_ends_and_says_so(server: ModelServer) -> None:
    server.script = [error(429, retry_after="600")] * 2
    waiting, retries = patience(seconds=50.0)
    with pytest.raises(ModelServerError, match=r"asks to wait 600 s, and \d+ s are left"):
        server.client().query(MESSAGES, [], waiting)
    assert (len(server.requests), retries) == (1, [])


def test_a_stop_before_the_first_request_sends_none(server: ModelServer) -> None:
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(WaitingStoppedError):
        server.client().query(MESSAGES, [], patience(stopping=stopping)[0])
    assert server.requests == []


@both
def test_faults_of_the_server_are_retried(server: ModelServer, api: str) -> None:
    passing = [error(500), error(503), error(429), error(408), error(409), error(529)]
    server.script = [*passing, GOOD[api]]
    waiting, retries = patience()
    assert server.client(api=api).query(MESSAGES, [], waiting).text == "x"
    assert [retry.attempt for retry in retries] == [1, 2, 3, 4, 5, 6]


def test_retries_are_bounded_by_number(server: ModelServer) -> None:
    """R28."""
    server.script = [error(500)] * 20
    with pytest.raises(ModelServerError):
        server.client().query(MESSAGES, [], patience()[0])
    assert len(server.requests) == served.MOST_ATTEMPTS


@both
@pytest.mark.parametrize(
    ("answer", "expected", "told"),
    [
        (error(429, "insufficient_quota"), QuotaError, "quota .* Waiting does not help"),
        (error(429, message="litellm: insufficient_quota"), QuotaError, "quota"),
        (error(402, message="Insufficient Balance"), QuotaError, "add credit"),
        (error(401), KeyRefusedError, "OPENAI_API_KEY"),
        (error(403), KeyRefusedError, "OPENAI_API_KEY"),
        (error(404), AddressError, "--model, --api and --base-url"),
        (error(400, message="bad tools"), ModelServerError, "bad tools"),
    ],
)
def test_faults_that_do_not_pass_are_not_retried(
    server: ModelServer, api: str, answer: Answer, expected: type[Exception], told: str
) -> None:
    server.script = [answer]
    waiting, retries = patience()
    with pytest.raises(expected, match=told):
        server.client(api=api).query(MESSAGES, [], waiting)
    assert (len(server.requests), retries) == (1, [])


def test_no_server_at_all_says_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "MOST_ATTEMPTS", 2)
    monkeypatch.setattr(served, "_BACKOFF", lambda _: 0.01)
    waiting, retries = patience()
    with pytest.raises(ModelServerError, match=r"127\.0\.0\.1:9/v1.*--base-url") as caught:
        ServedModel("local", "secret", "http://me:hidden@127.0.0.1:9/v1", ModelOptions()).query(MESSAGES, [], waiting)
    assert "hidden" not in str(caught.value)
    assert len(retries) == 1


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "the request exceeds the available context size. try increasing the context size",
        "input length exceeds the context length",
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens",
        "Input validation error: `inputs` must have less than 4095 `tokens`. Given: 5000",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "Input is too long for requested model.",
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
        "Please reduce the length of the messages or completion.",
        "Invalid request: Your request exceeded model token limit: 262144",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    ],
)
def test_conversation_that_is_too_long_is_told_apart_in_every_wording(server: ModelServer, message: str) -> None:
    """Of servers that people run or rent; llama.cpp's older ones answer with 500."""
    for status in (400, 413, 422, 500):
        server.script = [error(status, message=message)]
        waiting, retries = patience()
        with pytest.raises(ContextOverflowError):
            server.client().query(MESSAGES, [], waiting)
        assert retries == []


@both
def test_conversation_that_is_too_long_by_its_code(server: ModelServer, api: str) -> None:
    server.script = [error(400, "context_length_exceeded")]
    with pytest.raises(ContextOverflowError):
        server.client(api=api).query(MESSAGES, [], patience()[0])


def test_rate_limit_of_tokens_is_waited_out_unless_one_request_exceeds_it(server: ModelServer) -> None:
    passing = error(429, "rate_limit_exceeded", "Too many tokens, please wait. Limit 30000, Used 29000.")
    never = error(429, "rate_limit_exceeded", "Request too large. The input or output tokens must be reduced.")
    server.script = [passing, completion({"content": "x"}), never, Answer("<html>Entity too large</html>", 413)]
    client = server.client()
    assert client.query(MESSAGES, [], patience()[0]).text == "x"
    for _ in range(2):
        with pytest.raises(ContextOverflowError):
            client.query(MESSAGES, [], patience()[0])


def test_page_of_an_error_is_told_in_short(server: ModelServer) -> None:
    server.script = [Answer("<html>" + "busy " * 10_000, 503), completion({"content": "x"})]
    waiting, retries = patience()
    server.client().query(MESSAGES, [], waiting)
    assert 0 < len(retries[0].error) <= 1000


@both
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    "answer", [Answer("<html>Welcome</html>", headers={"content-type": "text/html"}), Answer("{broken")]
)
def test_page_that_is_no_reply_at_all(server: ModelServer, api: str, streaming: bool, answer: Answer) -> None:
    server.script = [answer]
    with pytest.raises(AddressError, match="--base-url"):
        server.client(api=api, stream=streaming).query(MESSAGES, [], patience()[0])


@both
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"error": {"message": "provider down"}}, "provider down"),
        ({"error": "provider down"}, "provider down"),
        ({"error": {"message": "upstream", "code": 502}}, "502: upstream"),
        ({"choices": [], "output": [], "note": "nothing today"}, "nothing today"),
    ],
)
def test_success_without_a_reply_is_tried_again_and_told(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, api: str, body: dict[str, object], told: str
) -> None:
    monkeypatch.setattr(served, "MOST_ATTEMPTS", 2)
    server.script = [Answer(body)] * 2 + [Answer(body), GOOD[api]]
    client = server.client(api=api)
    with pytest.raises(ModelServerError, match=told):
        client.query(MESSAGES, [], patience()[0])
    assert client.query(MESSAGES, [], patience()[0]).text == "x"


def test_error_of_one_choice_is_an_error(server: ModelServer) -> None:
    broken = completion({"content": "half"}, "error")
    quota = completion({"content": ""}, error=None)
    assert isinstance(quota.body, dict)
    quota.body["choices"][0]["error"] = {"code": 402, "message": "credits"}
    server.script = [broken, quota]
    waiting, retries = patience()
    with pytest.raises(QuotaError):
        server.client().query(MESSAGES, [], waiting)
    assert len(retries) == 1


@both
@pytest.mark.parametrize("streaming", [False, True])
def test_server_that_says_nothing_is_given_up_and_the_way_out_told(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, api: str, streaming: bool
) -> None:
    monkeypatch.setattr(served, "REQUEST_TIMEOUT_S", 0.0)
    monkeypatch.setattr(served, "MOST_ATTEMPTS", 1)
    over = threading.Event()
    server.script = [Answer({}, silent=over)]
    with pytest.raises(ModelServerError, match="--stream"):
        server.client(api=api, stream=streaming).query(MESSAGES, [], patience()[0])
    over.set()


def test_answer_that_is_cut_by_the_connection_is_a_retry(server: ModelServer) -> None:
    cut = completion({"content": "x"})
    cut.drops = True
    server.script = [cut, completion({"content": "x"})]
    waiting, retries = patience()
    assert server.client().query(MESSAGES, [], waiting).text == "x"
    assert len(retries) == 1

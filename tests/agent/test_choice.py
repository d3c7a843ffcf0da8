"""Tests of how a run's model is chosen."""

from pathlib import Path

import pytest
from scripted import ScriptedModel, ScriptedTools, compile_call, roll_out
from test_recorded import ship

from agent import recorded
from agent.choice import DEFAULT_MODEL, Choice, choose, require_prices
from agent.model import ModelReply
from runs.apis import Api
from runs.config import Limits, ModelOptions
from tasks.errors import UsageError
from tasks.spec import Target

RECORDING = "causal_conv/20260101-000000-aaaaaa/rollout-1"


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One recorded run of causal_conv on the host."""
    model = ScriptedModel([ModelReply(text="x", tool_calls=(compile_call("code"),)), KeyboardInterrupt()])
    _, events = roll_out(tmp_path / "first", model, ScriptedTools())
    ship(tmp_path / "shipped", "20260101-000000-aaaaaa", Target.CPU, events)
    monkeypatch.setattr(recorded, "RECORDED", tmp_path / "shipped")
    return tmp_path / "shipped"


def chosen(model: str | None = None, base_url: str | None = None, **environment: str) -> Choice:
    return choose(model, base_url, "causal_conv", Target.CPU, environment)


def test_nothing_named_and_no_key_replays_the_recording_and_says_so() -> None:
    choice = chosen()
    assert (choice.name, choice.recorded_from, choice.by_default) == ("recorded", RECORDING, True)
    assert choice.make_client().name == "recorded"


def test_recorded_by_name_is_no_default() -> None:
    choice = chosen("recorded", OPENAI_API_KEY="k")
    assert (choice.recorded_from, choice.by_default) == (RECORDING, False)


def test_recorded_by_path(shipped: Path) -> None:
    path = shipped / "causal_conv" / "20260101-000000-aaaaaa"
    assert chosen(f"recorded:{path}").recorded_from == RECORDING


def test_recording_of_another_task_is_refused(shipped: Path) -> None:
    path = shipped / "causal_conv" / "20260101-000000-aaaaaa"
    with pytest.raises(UsageError, match="is of causal_conv, not of conv_groupnorm"):
        choose(f"recorded:{path}", None, "conv_groupnorm", Target.CPU, {})


def test_model_with_a_key_is_served() -> None:
    choice = chosen("gpt-5", KERNELWRIGHT_API_KEY="k")
    assert (choice.name, choice.base_url, choice.recorded_from) == ("gpt-5", None, None)
    assert choice.make_client().name == "gpt-5"


def test_key_alone_means_the_default_model() -> None:
    assert chosen(OPENAI_API_KEY="k").name == DEFAULT_MODEL


def test_server_of_ones_own_needs_no_key() -> None:
    choice = chosen("local", "http://127.0.0.1:8000/v1")
    assert (choice.base_url, choice.prices) == ("http://127.0.0.1:8000/v1", None)
    assert choice.make_client().name == "local"


def test_options_are_resolved_and_kept_with_the_choice() -> None:
    """A model that the table names is asked as it says, except where the caller says otherwise."""
    asked = ModelOptions(stream=True)
    choice = choose("gpt-5", None, "causal_conv", Target.CPU, {"OPENAI_API_KEY": "k"}, asked)
    assert choice.options is not None
    assert (choice.options.api, choice.options.stream, choice.options.summary) == (Api.RESPONSES, True, "auto")
    assert chosen().options is None


def test_password_in_a_url_is_not_recorded() -> None:
    assert chosen("local", "http://me:secret@host:8000/v1?key=secret").base_url == "http://host:8000/v1"


@pytest.mark.parametrize(
    ("model", "base_url", "environment", "told"),
    [
        ("gpt-5", None, {}, "OPENAI_API_KEY"),
        (None, "http://127.0.0.1:8000/v1", {}, "Which model"),
        (None, None, {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://host/v1"}, "Which model"),
    ],
)
def test_what_is_missing_is_said(
    model: str | None, base_url: str | None, environment: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        chosen(model, base_url, **environment)


def test_dollars_cannot_be_limited_without_prices() -> None:
    choice = chosen("local", "http://127.0.0.1:8000/v1")
    require_prices(Limits(tokens=5), choice)
    with pytest.raises(UsageError, match="--tokens"):
        require_prices(Limits(dollars=1.0), choice)

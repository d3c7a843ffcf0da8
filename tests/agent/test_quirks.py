"""Tests of the table of quirks and of schemas that servers can keep a model to."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from agent.quirks import options_for
from agent.strict_schema import strict_schema
from runs.apis import Api, ReasoningEcho
from runs.config import ModelOptions
from tasks.errors import UsageError

PLAIN = ModelOptions()


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "quirks.toml"
    path.write_text(text)
    return path


def test_unknown_models_are_asked_plainly() -> None:
    assert options_for("qwen2.5-coder:32b", PLAIN) == ModelOptions(api=Api.CHAT, stream=False, temperature=None)


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-mini-2025-08-07", "o3", "o4-mini"])
def test_models_that_give_their_reasoning_only_by_responses_are_asked_by_it(model: str) -> None:
    options = options_for(model, PLAIN)
    assert (options.api, options.summary, options.output_limit) == (Api.RESPONSES, "auto", "max_completion_tokens")
    assert options.temperature is None


def test_caller_goes_before_the_table_and_the_table_before_the_defaults(tmp_path: Path) -> None:
    path = table(tmp_path, '[[model]]\nnames = ["Mine-*"]\napi = "responses"\nstream = true\ntemperature = 0.6\n')
    asked = ModelOptions(api=Api.CHAT, reasoning=ReasoningEcho.EXCLUDE)
    expected = ModelOptions(api=Api.CHAT, reasoning=ReasoningEcho.EXCLUDE, stream=True, temperature=0.6)
    assert options_for("mine-7b", asked, path) == expected
    assert options_for("yours-7b", asked, path) == asked


def test_first_entry_that_fits_counts(tmp_path: Path) -> None:
    entries = ('names = ["a-nano*"]\nparallel_calls = false', 'names = ["a-*", "b"]\nstrict = true')
    path = table(tmp_path, "".join(f"[[model]]\n{entry}\n" for entry in entries))
    assert options_for("a-nano-2", PLAIN, path) == ModelOptions(parallel_calls=False)
    assert options_for("a-large", PLAIN, path) == ModelOptions(strict=True)
    assert options_for("b", PLAIN, path) == ModelOptions(strict=True)


def test_options_that_a_run_has_recorded_survive_a_changed_table(tmp_path: Path) -> None:
    resolved = options_for("m", PLAIN, table(tmp_path, '[[model]]\nnames = ["m"]\napi = "responses"\n'))
    recorded = ModelOptions.model_validate_json(resolved.model_dump_json())
    assert options_for("m", recorded, table(tmp_path, '[[model]]\nnames = ["m"]\nstream = true\n')) == resolved
    assert resolved.api is Api.RESPONSES


@pytest.mark.parametrize(
    "text", ["[[model]", '[[model]]\napi = "chat"\n', '[[model]]\nnames = ["m"]\ntemprature = 1\n']
)
def test_a_broken_table_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"quirks\.toml cannot be read"):
        options_for("m", PLAIN, table(tmp_path, text))


def schema(properties: dict[str, JsonValue], *required: str) -> dict[str, JsonValue]:
    return {"type": "object", "properties": properties, "required": list(required)}


def test_schema_whose_arguments_are_all_required_becomes_strict() -> None:
    code: dict[str, JsonValue] = {"code": {"type": "string", "description": "The module."}}
    assert strict_schema(schema(code, "code")) == {**schema(code, "code"), "additionalProperties": False}


def test_optional_argument_that_may_be_null_becomes_required() -> None:
    nullable: JsonValue = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    loose = schema(
        {"a": {"type": "string"}, "b": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}}, "a"
    )
    strict = schema({"a": {"type": "string"}, "b": nullable}, "a", "b")
    assert strict_schema(loose) == {**strict, "additionalProperties": False}


@pytest.mark.parametrize(
    "properties",
    [{"calls": {"type": "integer", "default": 3}}, {"shape": {"type": "object", "properties": {}}}],
)
def test_schema_that_would_change_its_meaning_stays_loose(properties: dict[str, JsonValue]) -> None:
    assert strict_schema(schema(properties)) is None

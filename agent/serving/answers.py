"""What the tools of the server look like to a client: their list, and the answers as MCP has them."""

import json
from pathlib import Path
from typing import Any

import mcp_types as mcp
from pydantic import Field

from agent.prompt import rollout_over
from agent.serving.caller import Answered
from agent.toolset import definitions
from runs.events import EndReason
from runs.summary import Outcome, outcome_of
from tasks.record import Record
from tools.results import Refused
from tools.toolbox import definition

START = "start_task"
_WRITING = ("compile_kernel", "submit")
"""Tools that add something to the rollout; all others only look."""


class StartTaskArguments(Record):
    """Begin: the answer tells what to do, by which rules, on which machine, against which times. Everything until
    `submit` belongs to one rollout; called again, the present one is ended and another begins. Without a name, where
    this server has more than one task, it lists them."""

    task: str | None = Field(default=None)
    """The name of a task."""


class Answer(Record):
    """What a tool answers. Everything it found out, with every sample, stands in the transcript."""

    outcome: Outcome
    """The verdict, and the time and speedup where it measured them."""
    candidate: str | None
    """The id of the candidate that the call was about."""
    text: str
    """The same in words, with what to do about it."""
    over: bool
    """Whether this was the last call of the rollout."""


class Begun(Record):
    """A rollout that begins."""

    task: str
    target: str
    run: str
    """The directory of the run."""
    transcript: str
    """The path of its log."""
    text: str
    """The task: what to do, by which rules, on which machine, against which times."""


def tools() -> list[mcp.Tool]:
    """All tools of the server."""
    described = [definition(START, StartTaskArguments), *definitions()]
    return [_tool(each["function"]) for each in described]


def answer_of(answered: Answered) -> mcp.CallToolResult:
    """The answer to a call that reached the rollout. A candidate's fault is an answer; what could not be carried out is
    an error."""
    reply, ended = answered.reply, answered.ended
    text = reply.text if ended is None else f"{reply.text}\n\n{rollout_over(ended.message)}"
    answer = Answer(outcome=outcome_of(reply.result), candidate=reply.candidate, text=text, over=ended is not None)
    failed = isinstance(reply.result, Refused) or (ended is not None and ended.reason is EndReason.TOOL_FAULT)
    return _result(answer, text, is_error=failed)


def refusal(text: str) -> mcp.CallToolResult:
    """The answer to a call that reached no rollout."""
    return mcp.CallToolResult(content=[mcp.TextContent(type="text", text=text)], is_error=True)


def beginning(task: str, target: str, run: Path, transcript: Path, text: str) -> mcp.CallToolResult:
    """The answer to `start_task`."""
    begun = Begun(task=task, target=target, run=str(run), transcript=str(transcript), text=text)
    return _result(begun, text, is_error=False)


def _result(record: Record, text: str, *, is_error: bool) -> mcp.CallToolResult:
    return mcp.CallToolResult(
        content=[mcp.TextContent(type="text", text=text)],
        structured_content=json.loads(record.model_dump_json()),
        is_error=is_error,
    )


def _tool(function: dict[str, Any]) -> mcp.Tool:
    name = function["name"]
    return mcp.Tool(
        name=name,
        description=function["description"],
        input_schema=function["parameters"],
        output_schema=_untitled((Begun if name == START else Answer).model_json_schema(mode="serialization")),
        annotations=mcp.ToolAnnotations(
            title=name.replace("_", " ").capitalize(),
            read_only_hint=name not in (*_WRITING, START),
            destructive_hint=name == START,
            idempotent_hint=name not in ("submit", START),
            open_world_hint=False,
        ),
    )


def _untitled(schema: Any) -> Any:
    """A schema without the titles that Pydantic makes of the names: clients put schemas into their model's context."""
    if isinstance(schema, dict):
        return {key: _untitled(value) for key, value in schema.items() if key != "title"}
    return [_untitled(each) for each in schema] if isinstance(schema, list) else schema

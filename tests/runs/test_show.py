"""Tests of the summary, the rendering, and the command `show`."""

import json
from pathlib import Path

import pytest
import typer
from rich.console import Console
from sample_transcripts import BEGAN, BROKEN, GOOD, config, events, reply_of, timed, write_run
from typer.testing import CliRunner

from runs.commands import register
from runs.config import Limits, Spending
from runs.events import Compacted, Ended, EndReason, Event, ModelReplied, Nudged, Resumed, ToolCall, ToolReturned
from runs.listing import list_all
from runs.log import TranscriptLog
from runs.render import render_event
from runs.store import create_run
from runs.summary import summarize
from runs.terminal import duration, printable
from tasks.errors import RunFormatError
from tools.candidate import Candidate
from tools.results import Fault, Interval, ToolResult
from tools.verdict import Verdict


def app() -> typer.Typer:
    made = typer.Typer()
    register(made)
    return made


def test_summary_has_a_row_for_each_call() -> None:
    summary = summarize(events())
    figures = [(row.turn, row.tool, row.candidate, row.outcome.verdict, row.outcome.speedup) for row in summary.rows]
    assert figures == [
        (1, "compile_kernel", BROKEN.id, "build_failed", None),
        (2, "compile_kernel", GOOD.id, "built", None),
        (2, "submit", GOOD.id, "correct", 2.0),
    ]


def test_summary_counts_from_the_replies() -> None:
    summary = summarize(events())
    assert summary.spent is not None
    assert (summary.spent.turns, summary.spent.input_tokens, summary.spent.output_tokens) == (2, 200, 40)
    assert summary.spent.dollars is None
    assert summary.spent.seconds == 30.0
    assert summary.reason is EndReason.SUBMITTED
    assert summary.submitted is not None and summary.submitted.median_ns == 2000.0
    assert summary.best is not None and summary.best.turn == 2


def test_summary_of_a_killed_rollout() -> None:
    summary = summarize(events()[:3])
    assert summary.reason is None
    assert summary.best is None
    assert len(summary.rows) == 1


def test_transcript_without_a_beginning_is_an_error() -> None:
    with pytest.raises(RunFormatError, match="rollout_started"):
        summarize(events()[1:])
    with pytest.raises(RunFormatError, match="rollout_started"):
        summarize([])


def test_show_prints_the_whole_conversation(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    result = CliRunner().invoke(app(), ["show", str(run.path)])
    assert result.exit_code == 0, result.output
    expected = (
        "built by hand for a test",
        "You write kernels.",
        "I think of shared memory.",
        "Let me try.",
        "> compile_kernel",
        "class ModelNew(:",
        "build_failed",
        "the tool said fault",
        "Repaired.",
        "class ModelNew(torch.nn.Module):",
        "2.00x (1.90 to 2.10)",
        "ended: submitted",
        "200 input and 40 output tokens",
    )
    position = 0
    for text in expected:
        position = result.output.index(text, position)
    assert "\x1b" not in result.output


def test_show_as_json_writes_one_object_a_line_and_nothing_else(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    result = CliRunner().invoke(app(), ["show", str(run.path), "--json"])
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert lines[0]["event"] == "run" and lines[0]["id"] == run.id
    assert lines[-1]["event"] == "summary" and lines[-1]["reason"] == "submitted"
    recorded = [json.loads(line) for line in run.transcript("rollout-1").read_text().splitlines()]
    assert lines[1:-1] == recorded


def test_show_needs_no_torch(tmp_path: Path) -> None:
    # In a process of its own, because other tests have imported PyTorch into this one.
    import subprocess
    import sys

    run = write_run(tmp_path)
    code = (
        "import sys, typer; from runs.commands import register; app = typer.Typer(); register(app)\n"
        f"try: app(['show', {str(run.path)!r}])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr


def test_arguments_nested_without_end_are_shown_as_the_model_wrote_them(capsys: pytest.CaptureFixture[str]) -> None:
    call = ToolCall(id="a", name="verify", arguments="[" * 100_000)
    reply = next(event for event in events() if isinstance(event, ModelReplied))
    render_event(Console(width=100), reply.model_copy(update={"tool_calls": (call,)}))
    assert "> verify [[[[" in capsys.readouterr().out


def test_text_of_a_model_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\r\nc\td\u202ee é 漢") == "a�[2Jb\nc\td�e é 漢"


def test_durations_have_fitting_units() -> None:
    assert [duration(value) for value in (512.0, 2_340.0, 17_900_000.0, 2.5e9, None)] == [
        "512 ns",
        "2.34 us",
        "17.9 ms",
        "2.5 s",
        "",
    ]


def test_best_is_no_candidate_that_a_tool_found_wrong_and_no_disturbed_measurement() -> None:
    """A candidate that benchmarks fast after it failed to verify was once named the best of a recorded run."""
    calm, disturbed = (
        timed(),
        timed().model_copy(update={"speedup": 9.0, "speedup_interval": Interval(low=0.8, high=20)}),
    )
    other = Candidate("wrong")
    wrong = Fault(stage="verify", verdict=Verdict.INCORRECT, message="off by one", candidate=other.id)
    fast = calm.model_copy(update={"candidate": other.id, "speedup_interval": Interval(low=5.0, high=6.0)})
    results: list[tuple[Candidate, ToolResult]] = [(GOOD, calm), (GOOD, disturbed), (other, wrong), (other, fast)]
    call = ToolCall(id="call_9", name="benchmark", arguments="{}")
    returned = [
        ToolReturned(
            turn=turn,
            time=BEGAN,
            call_id=call.id,
            tool=call.name,
            reply=reply_of(result, candidate),
            executed=True,
            seconds=1,
        )
        for turn, (candidate, result) in enumerate(results, start=1)
    ]
    best = summarize([events()[0], *returned]).best
    assert best is not None and (best.candidate, best.turn) == (GOOD.id, 1)


def test_show_tells_what_a_long_rollout_went_through(tmp_path: Path) -> None:
    run = create_run(tmp_path, config())
    limits = Limits()
    more: list[Event] = [
        Compacted(
            turn=2, turns_removed=7, turns_kept=3, tokens_before=9000, tokens_after=4000, note="The best so far."
        ),
        Nudged(turn=2, text="Call a tool."),
        Ended(turn=2, reason=EndReason.QUOTA_EXHAUSTED, message="no money"),
        Resumed(turn=2, spent=Spending(turns=2, seconds=12.0), limits=limits, gap_s=3600.0),
    ]
    with TranscriptLog(run.transcript("rollout-1")) as log:
        for event in (*events()[:5], *more):
            log.append(event)
    shown = CliRunner().invoke(app(), ["show", str(run.path)]).output
    expected = (
        "7 turns removed from the conversation, 3 kept: about 9000 tokens before, 4000 after",
        "The best so far.",
        "Call a tool.",
        "ended: quota_exhausted (no money)",
        "resumed after 3600 s; 2 turns and 12 s had been spent",
        "ended: not (no end was recorded)",
    )
    position = 0
    for text in expected:
        position = shown.index(text, position)
    (line,) = list_all((tmp_path,))
    assert line.rollouts[0].reason is None

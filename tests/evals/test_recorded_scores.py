"""Scores of recorded runs, from their transcripts alone: those of shipped runs, with other ends."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from evals.recorded_command import register
from evals.recorded_scores import read_samples, scores_of
from runs.events import Ended, EndReason, Event, RolloutStarted, Submitted
from runs.find import find_run, list_runs
from runs.log import TranscriptLog
from runs.places import RECORDED
from runs.store import RunDirectory, create_run
from tasks.errors import UsageError
from tools.results import Evaluation, Fault, Timed
from tools.verdict import Verdict

End = tuple[Verdict | EndReason | None, float]
"""A verdict with a speedup, or why nothing was submitted (None: killed)."""
ENDS: Sequence[End] = (
    (Verdict.CORRECT, 2.0),
    (Verdict.CORRECT, 0.5),
    (Verdict.INCORRECT, 0.0),
    (EndReason.TURN_LIMIT, 0.0),
    (EndReason.MODEL_SERVER_ERROR, 0.0),
)


def submission(like: Submitted, verdict: Verdict, speedup: float) -> Submitted:
    was = like.evaluation
    assert isinstance(was.benchmark, Timed)
    if verdict is Verdict.CORRECT:
        timed = was.benchmark.model_copy(update={"speedup": speedup})
        return like.model_copy(update={"evaluation": was.model_copy(update={"benchmark": timed})})
    fault = Fault(stage="verify", verdict=verdict, message="why", candidate=was.candidate)
    evaluation = Evaluation(candidate=was.candidate, task=was.task, target=was.target, build=was.build, verify=fault)
    return like.model_copy(update={"evaluation": evaluation})


def run_of(root: Path, run_id: str, ends: Sequence[End], task: str = "causal_conv") -> RunDirectory:
    """A shipped run of a task, with as many rollouts as ends, each cut down to its beginning and its end."""
    shipped = next(run for run in list_runs(RECORDED) if run.config().task == task)
    run = create_run(root, shipped.config().model_copy(update={"id": run_id, "rollouts": len(ends)}))
    events = shipped.events("rollout-1")
    first = next(event for event in events if isinstance(event, RolloutStarted))
    submitted = next(event for event in events if isinstance(event, Submitted))
    for number, (end, speedup) in enumerate(ends, start=1):
        with TranscriptLog(run.transcript(f"rollout-{number}")) as log:
            made: list[Event] = [first.model_copy(update={"rollout": f"rollout-{number}"})]
            if isinstance(end, Verdict):
                made += [submission(submitted, end, speedup), Ended(turn=1, reason=EndReason.SUBMITTED, message=end)]
            elif end is not None:
                made.append(Ended(turn=1, reason=end, message="so it was"))
            for event in made:
                log.append(event)
    return run


def asked(*arguments: str) -> Result:
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, list(arguments))


def test_scores_of_one_model_on_one_task(tmp_path: Path) -> None:
    run = run_of(tmp_path, "run", ENDS)
    (score,) = scores_of(read_samples(find_run(str(run.path))))
    assert (score.task, score.candidates, score.judged) == ("causal_conv", 5, 4)
    assert {item.p: (item.fast, item.of_all, item.of_judged) for item in score.fast_p} == {
        0.0: (2, 2 / 5, 2 / 4),
        0.8: (1, 1 / 5, 1 / 4),
        1.0: (1, 1 / 5, 1 / 4),
        1.5: (1, 1 / 5, 1 / 4),
        2.0: (0, 0.0, 0.0),
    }
    assert score.geometric_mean is not None
    assert score.geometric_mean.value == pytest.approx(math.sqrt(2.0 * 0.5))
    # Of five samples two are right: one drawn is right with 2/5, all five drawn hold a right one for certain.
    assert [(item.k, item.of_all, item.of_judged) for item in score.pass_at] == [
        (1, pytest.approx(2 / 5), pytest.approx(2 / 4)),
        (5, 1.0, None),
    ]
    assert score.verdicts == {
        Verdict.CORRECT: 2,
        Verdict.INCORRECT: 1,
        Verdict.NO_RESULT: 1,
        Verdict.UNAVAILABLE: 1,
    }


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        *((reason, Verdict.NO_RESULT) for reason in (EndReason.TOKEN_LIMIT, EndReason.TIME_LIMIT)),
        *((reason, Verdict.NO_RESULT) for reason in (EndReason.GPU_LIMIT, EndReason.STUCK)),
        *((reason, Verdict.NO_RESULT) for reason in (EndReason.MODEL_STOPPED, EndReason.CONTEXT_OVERFLOW)),
        *((reason, Verdict.HARNESS_ERROR) for reason in (EndReason.TOOL_FAULT, EndReason.INTERNAL_ERROR)),
        *((reason, Verdict.UNAVAILABLE) for reason in (EndReason.INTERRUPTED, None)),
        *((reason, Verdict.UNAVAILABLE) for reason in (EndReason.STORAGE_FAULT, EndReason.QUOTA_EXHAUSTED)),
        *((reason, Verdict.UNAVAILABLE) for reason in (EndReason.MODEL_SERVER_ERROR, EndReason.RECORDING_EXHAUSTED)),
    ],
)
def test_who_submitted_nothing_is_wrong_unless_it_had_no_chance(
    tmp_path: Path, reason: EndReason | None, verdict: Verdict
) -> None:
    run = run_of(tmp_path, "run", [(reason, 0.0)])
    (sample,) = read_samples(find_run(str(run.path)))
    assert sample.line.verdict is verdict
    assert "nothing was submitted" in sample.line.message
    assert sample.line.speedup is None


def test_tasks_are_scored_apart_and_together(tmp_path: Path) -> None:
    runs = [run_of(tmp_path, "a", ENDS), run_of(tmp_path, "b", ENDS[:1], task="conv_groupnorm")]
    samples = [sample for run in runs for sample in read_samples(find_run(str(run.path)))]
    scores = scores_of(samples)
    assert [(score.task, score.candidates, bool(score.pass_at)) for score in scores] == [
        ("causal_conv", 5, True),
        ("conv_groupnorm", 1, True),
        (None, 6, False),
    ]
    assert scores[-1].geometric_mean is not None
    assert scores[-1].geometric_mean.value == pytest.approx((2.0 * 0.5 * 2.0) ** (1 / 3))


def test_a_run_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    run = run_of(tmp_path, "run", ENDS)
    lines = [
        json.loads(line) for line in asked(str(run.path), str(tmp_path), str(run.path), "--json").stdout.splitlines()
    ]
    assert [line["event"] for line in lines] == ["sample"] * 5 + ["scores"]
    assert [line["line"]["speedup"] for line in lines[:2]] == [2.0, 0.5]
    assert lines[-1]["candidates"] == 5


def test_the_tables_hold_both_denominators(tmp_path: Path) -> None:
    told = asked(str(run_of(tmp_path, "run", ENDS).path))
    assert told.exit_code == 0, told.output
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in told.stdout.splitlines() if "│" in line]
    assert [row[3] for row in cells if row[0] == "run"] == [
        "correct",
        "correct",
        "incorrect",
        "no_result",
        "unavailable",
    ]
    of_all, of_judged = (row for row in cells if row[1] in ("all 5", "4 judged"))
    assert of_all[0] == "causal_conv on cpu, claude"
    assert of_all[2:] == ["0.400 (2)", "0.200 (1)", "0.200 (1)", "0.200 (1)", "0.000 (0)", "0.400", "1.000", of_all[-1]]
    assert of_judged[2:4] == ["0.500 (2)", "0.250 (1)"] and of_judged[-2:] == ["-", "over 2 correct"]
    assert "run rollout-4: nothing was submitted; the rollout ended with turn_limit: so it was" in told.stdout


def test_the_shipped_runs_are_all_correct() -> None:
    told = asked(str(RECORDED), "--json")
    assert told.exit_code == 0, told.output
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    ends = {run.id: run.events("rollout-1")[-1] for run in list_runs(RECORDED)}
    for line in (line for line in lines if line["event"] == "sample"):
        end = ends[line["run"]]
        assert isinstance(end, Ended) and end.message == line["line"]["message"]
    assert lines[-1]["verdicts"] == {"correct": 5}


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_scored(tmp_path: Path) -> None:
    run_of(tmp_path, "good", ENDS[:1])
    foreign = run_of(tmp_path, "foreign", ENDS[:1])
    foreign.transcript("rollout-1").write_text('{"of": "another program"}\n{}\n')
    told = asked(str(tmp_path), "--json")
    assert told.exit_code == 1
    assert "kernelwright: not scored: Line 1 of" in told.stderr and "foreign" in told.stderr
    assert [json.loads(line)["event"] for line in told.stdout.splitlines()] == ["sample", "scores"]


def test_nothing_to_score_is_bad_usage(tmp_path: Path) -> None:
    run = run_of(tmp_path, "run", ENDS[:1])
    run.transcript("rollout-1").write_text("")
    assert isinstance(asked(str(run.path)).exception, UsageError)

"""A small run of `evolve` whose every candidate is built, verified and timed on this host, by rollouts at once."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agent import commands
from agent.simulated.variant import Variant, text_of, variants_in
from runs.events import Ended, EndReason, RolloutStarted, ToolReturned
from runs.find import list_runs
from runs.strategy_name import StrategyName
from tasks.loader import find_task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.judge import Judge
from tools.results import Fault, Timed, Verified
from tools.server_process import Processes
from tools.verdict import Verdict

PROBLEM = str(Path(__file__).resolve().parents[2] / "benchmarks" / "small" / "causal.py")


def run(*words: str) -> str:
    app = typer.Typer()
    commands.register(app)
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def test_evolve_with_the_simulated_model_and_again_after_more_turns_are_allowed(tmp_path: Path) -> None:
    words = ("--model", "simulated:2", "--strategy", "evolve", "--rollouts", "4", "--parallel", "2", "--turns", "1")
    output = run("run", PROBLEM, "--target", "cpu", "--out", str(tmp_path), "--total-turns", "3", *words)
    (found,) = list_runs(tmp_path)
    assert found.config().strategy is not None
    events = {name: found.events(name) for name in found.rollouts()}
    turns = sum(event.event == "model_reply" for each in events.values() for event in each)
    assert turns == 3, "the budget is the run's, whatever goes on at once"
    assert f"{found.rollouts()[0]}  turn 1  compile_kernel" in output
    for each in events.values():
        assert isinstance(each[-1], Ended) and each[-1].reason is EndReason.TURN_LIMIT
    results = [event for each in events.values() for event in each if isinstance(event, ToolReturned)]
    for event in results:
        variant = variants_in(found.candidate_text(event.reply.candidate or ""))[0]
        if event.tool == "verify":
            expected = {
                "": "verified",
                "bracket left open": "fault",
                "wrong tap order": "fault",
                "missing tail": "fault",
            }
            assert event.reply.result.status == expected[variant.fault], event.reply.text
        if event.tool == "benchmark" and isinstance(event.reply.result, Timed):
            assert event.reply.device_seconds > 0
    # What is left of the strategy's rollouts is started by `resume`, from what the transcripts say.
    run("resume", str(found.path), "--total-turns", "4")
    origins = [
        event.origin for name in found.rollouts() for event in found.events(name) if isinstance(event, RolloutStarted)
    ]
    assert [origin and (origin.strategy, origin.island) for origin in origins] == [
        (StrategyName.EVOLVE, number % 2) for number in range(4)
    ]
    assert sum(event.event == "model_reply" for name in found.rollouts() for event in found.events(name)) == 4
    bred = {candidate for origin in origins if origin for candidate in origin.parents}
    assert bred and all((found.candidates / f"{candidate}.py").exists() for candidate in bred)


@pytest.mark.parametrize("threads", [False, True])
def test_the_corners_of_the_family_are_right_and_each_fault_is_found(threads: bool, processes: Processes) -> None:
    corners = [
        Variant(
            outputs=outputs, times=times, threads=threads, packed=packed, taps_outside=packed, fixed_taps=not packed
        )
        for outputs, times, packed in ((1, 8, False), (8, 64, True))
    ]
    with Judge(find_task(PROBLEM), Target.CPU, processes=processes) as judge:
        for variant in corners:
            verified = judge.verify(Candidate(text_of(variant)))
            assert isinstance(verified, Verified), verified
        for fault, verdict in (
            ("bracket left open", Verdict.BUILD_FAILED),
            ("wrong tap order", Verdict.INCORRECT),
            ("missing tail", Verdict.INCORRECT),
        ):
            for variant in corners:
                wrong = judge.verify(
                    Candidate(text_of(Variant.model_validate({**variant.model_dump(), "fault": fault})))
                )
                assert isinstance(wrong, Fault) and wrong.verdict is verdict

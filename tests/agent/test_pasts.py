"""What strategies see of a run, read from its transcripts."""

from pathlib import Path

from lineages import attempt
from scripted import briefing

from agent.pasts import UNKNOWN, Pasts
from runs.config import Limits
from runs.events import Ended, EndReason, Event, RolloutStarted, ToolReturned
from runs.log import TranscriptLog
from runs.origin import Origin
from runs.store import RunDirectory
from runs.strategy_name import StrategyName
from tasks.spec import Target
from tools.candidate import Candidate
from tools.profile_results import Profiled
from tools.results import ToolReply

ORIGIN = Origin(strategy=StrategyName.EVOLVE, parents=("a" * 64,), island=1)


def started(name: str, origin: Origin | None = ORIGIN) -> RolloutStarted:
    return RolloutStarted(
        turn=0,
        rollout=name,
        task="causal_conv",
        target=Target.CPU,
        model="scripted",
        limits=Limits(),
        system_prompt="You write kernels.",
        opening="Begin.",
        origin=origin,
        tools=(),
        briefing=briefing(),
    )


def profile(text: str, said: str) -> ToolReturned:
    candidate = Candidate(text).id
    result = Profiled(
        candidate=candidate,
        shape="N=1",
        calls=1,
        call_ns=1.0,
        byte_count=1,
        flop_count=1,
        peak_bytes_per_s=None,
        peak_flops_per_s=None,
        floor_ns=None,
    )
    reply = ToolReply(text=said, result=result, candidate=candidate)
    return ToolReturned(turn=1, call_id="p", tool="profile", reply=reply, executed=True, seconds=1.0)


def written(run: RunDirectory, name: str, *events: Event) -> None:
    with TranscriptLog(run.transcript(name)) as log:
        for event in events:
            log.append(event)


def run_in(folder: Path) -> RunDirectory:
    (folder / "candidates").mkdir()
    return RunDirectory(folder)


def test_rollouts_come_in_the_order_of_their_starts_with_what_they_found(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    run.save_candidate(Candidate("text").id, "text")
    events = [*attempt(1, "text", 2.0), profile("text", "first"), profile("text", "last")]
    end = Ended(turn=1, reason=EndReason.TURN_LIMIT, message="over")
    written(run, "rollout-10", started("rollout-10", None))
    written(run, "rollout-2", started("rollout-2"), *events, end)
    second, tenth = Pasts(run).of(())
    assert (second.name, second.origin) == ("rollout-2", ORIGIN)
    assert (tenth.name, tenth.origin) == ("rollout-10", UNKNOWN)
    (found,) = second.ledger.attempts
    assert (found.outcome.speedup, second.text_of(found.candidate)) == (2.0, "text")
    assert second.profiles == {Candidate("text").id: "last"}


def test_one_that_was_begun_but_is_not_on_the_disk_counts_until_it_is_there(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    pasts = Pasts(run)
    begun = [started("rollout-1")]
    assert pasts.of(()) == ()
    (before,) = pasts.of(begun)
    assert (before.origin, before.ledger.attempts) == (ORIGIN, ())
    written(run, "rollout-1", started("rollout-1"), *attempt(1, "text", 2.0))
    (after,) = pasts.of(begun)
    assert len(after.ledger.attempts) == 1


def test_one_that_was_killed_before_its_first_event_was_whole_has_not_begun(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    path = run.transcript("rollout-1")
    path.parent.mkdir()
    path.write_bytes(started("rollout-1").model_dump_json().encode()[:40])
    assert Pasts(run).of(()) == ()

"""A run with several rollouts: what its strategy starts, at once or one after the other, within one budget."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from lineages import timed
from scripted import ScriptedModel, ScriptedTools, briefing, compile_call
from scripted import call as tool_call

from agent.choice import Choice
from agent.interruption import Interruption
from agent.model import Message, ModelClient, ModelReply, Patience, QuotaError, ToolDefinition
from agent.scheduling import at_once, one_by_one
from agent.session import MOST_FAULTS, Plan, Session, create
from runs.config import Limits
from runs.events import Ended, EndReason, ModelReplied, Resumed, RolloutStarted
from runs.origin import StrategyConfig
from runs.store import RunDirectory
from runs.strategy_name import StrategyName
from tasks.errors import ModelServerError, RunFormatError
from tasks.loader import find_task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.results import ToolReply

BRIEFING = briefing()
SUBMIT = ModelReply(text="", tool_calls=(tool_call("submit"),))


def speedup_of(text: str) -> float:
    return float(text.partition("=")[2])


class TimingTools(ScriptedTools):
    """Scripted tools that time a candidate as fast as its text says: `speedup=2.5`."""

    def call(self, name: str, arguments: str) -> ToolReply:
        if name != "benchmark":
            return super().call(name, arguments)
        self.calls.append((name, arguments))
        text = self.candidate_text(self.latest)
        return ToolReply(text="timed", result=timed(text, speedup_of(text)), candidate=self.latest, device_seconds=2.0)

    @property
    def latest(self) -> str:
        return self._last


def trial(speedup: float) -> ModelReply:
    """A reply that compiles and times a candidate."""
    code = f"speedup={speedup}"
    return ModelReply(text=f"idea {speedup}", tool_calls=(compile_call(code, "a"), tool_call("benchmark", "b")))


class Setting:
    """A session below a folder, with a model for each rollout."""

    def __init__(
        self,
        folder: Path,
        models: Sequence[ModelClient],
        name: StrategyName = StrategyName.BEST_OF,
        rollouts: int = 3,
        parallel: int = 1,
        limits: Limits = Limits(turns=10),  # noqa: B008
        budget: Limits = Limits(),  # noqa: B008
        target: Target = Target.CPU,
    ) -> None:
        given = iter(models)
        self.plan = Plan(
            task=find_task("causal_conv"),
            task_argument="causal_conv",
            target=target,
            choice=Choice(name="scripted", make_client=lambda: next(given)),
            strategy=StrategyConfig(name=name, rollouts=rollouts, parallel=parallel, islands=1),
            limits=limits,
            budget=budget,
            root=folder,
            note=None,
        )
        self.run = create(self.plan, BRIEFING)
        self.tools: list[TimingTools] = []
        self.interruption = Interruption()

    def session(self) -> Session:
        self.made = Session(
            self.plan, self.run, BRIEFING, self._make_tools, lambda _: lambda _: None, self.interruption
        )
        return self.made

    def carry_out(self) -> list[Ended]:
        work = self.session().next_work
        parallel = self.plan.strategy.parallel
        return one_by_one(work) if parallel == 1 else at_once(work, parallel, self.interruption.stop)

    def _make_tools(self) -> TimingTools:
        self.tools.append(TimingTools())
        return self.tools[-1]


def started(run: RunDirectory) -> list[RolloutStarted]:
    return [event for name in run.rollouts() for event in run.events(name) if isinstance(event, RolloutStarted)]


def turns(run: RunDirectory) -> int:
    return sum(isinstance(event, ModelReplied) for name in run.rollouts() for event in run.events(name))


def test_refine_gives_each_rollout_the_best_so_far_and_writes_down_which(tmp_path: Path) -> None:
    models = [
        ScriptedModel([trial(2.0), trial(1.5), SUBMIT]),
        ScriptedModel([trial(3.0), SUBMIT]),
        ScriptedModel([SUBMIT]),
    ]
    setting = Setting(tmp_path, models, StrategyName.REFINE)
    ends = setting.carry_out()
    assert [end.reason for end in ends] == 3 * [EndReason.SUBMITTED]
    events = started(setting.run)
    ids = [Candidate(text).id for text in ("speedup=2.0", "speedup=3.0")]
    assert [event.origin and event.origin.parents for event in events] == [(), (ids[0],), (ids[1],)]
    assert setting.made.over == ""
    assert all(event.origin and event.origin.strategy is StrategyName.REFINE for event in events)
    assert "speedup=2.0" in events[1].opening and "idea 1.5" in events[1].opening
    assert models[1].asked[0][1].text == events[1].opening
    # The last model submits what its opening showed, without having compiled it: the tools know it.
    assert setting.tools[2].latest == ids[1]
    config = setting.run.config()
    assert config.strategy == setting.plan.strategy and config.rollouts == 3


def test_rollouts_at_once_have_transcripts_of_their_own(tmp_path: Path) -> None:
    meeting = threading.Barrier(3, timeout=60)

    class Meeting(ScriptedModel):
        def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:
            meeting.wait()
            return super().query(messages, tools, patience)

    models = [Meeting([trial(speed), trial(speed + 1), SUBMIT]) for speed in (1.0, 10.0, 20.0)]
    setting = Setting(tmp_path, models, parallel=3)
    assert [end.reason for end in setting.carry_out()] == 3 * [EndReason.SUBMITTED]
    assert setting.run.rollouts() == ("rollout-1", "rollout-2", "rollout-3")
    for name in setting.run.rollouts():
        events = setting.run.events(name)
        assert [event.sequence for event in events] == list(range(len(events)))
        assert isinstance(events[-1], Ended)
    assert turns(setting.run) == 9


def test_a_budget_of_turns_is_not_overspent_by_rollouts_at_once(tmp_path: Path) -> None:
    """All five ask at the same time for the last turns there are."""

    class Slow(ScriptedModel):
        def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:
            threading.Event().wait(0.02)
            return super().query(messages, tools, patience)

    models = [Slow([trial(1.0 + number / 100) for number in range(9)]) for _ in range(5)]
    setting = Setting(tmp_path, models, rollouts=5, parallel=5, budget=Limits(turns=12))
    ends = setting.carry_out()
    assert turns(setting.run) == 12
    assert {end.reason for end in ends} == {EndReason.TURN_LIMIT}
    assert all("run's limit of 12 turns" in end.message for end in ends)


def test_no_rollout_is_started_once_the_runs_budget_is_spent(tmp_path: Path) -> None:
    models = [ScriptedModel([trial(1.0), trial(2.0), trial(3.0)])]
    setting = Setting(tmp_path, models, budget=Limits(gpu_seconds=3.0))
    # Each measurement holds the device for two seconds; the second one reaches the limit.
    assert [end.reason for end in setting.carry_out()] == [EndReason.GPU_LIMIT]
    assert setting.run.rollouts() == ("rollout-1",)
    assert "3.0 seconds of the device" in setting.made.over


@pytest.mark.parametrize(("target", "rollouts"), [(Target.CUDA, 2), (Target.CPU, 3)])
def test_no_rollout_is_started_near_the_floor_of_a_gpu(tmp_path: Path, target: Target, rollouts: int) -> None:
    """On a host kernels were seen at twice the rate that its floor allows: runs there would have ended early."""
    floor_ns = BRIEFING.floor_ns
    assert floor_ns is not None
    at_floor = 1e6 / floor_ns
    models = [ScriptedModel([trial(share * at_floor), SUBMIT]) for share in (0.8, 0.95, 0.8)]
    setting = Setting(tmp_path, models, target=target)
    assert len(setting.carry_out()) == rollouts
    assert ("90% of what the floor allows" in setting.made.over) is (target is Target.CUDA)


def test_after_faults_of_the_server_in_a_row_no_further_rollout_is_started(tmp_path: Path) -> None:
    gone = [ScriptedModel([ModelServerError("gone")]) for _ in range(MOST_FAULTS)]
    models = [ScriptedModel([ModelServerError("gone")]), ScriptedModel([trial(1.0), SUBMIT]), *gone]
    setting = Setting(tmp_path, models, rollouts=9)
    reasons = [end.reason for end in setting.carry_out()]
    server = EndReason.MODEL_SERVER_ERROR
    assert reasons == [server, EndReason.SUBMITTED, *MOST_FAULTS * [server]]
    assert "in a row" in setting.made.over


def test_without_quota_no_further_rollout_is_started(tmp_path: Path) -> None:
    setting = Setting(tmp_path, [ScriptedModel([QuotaError("nothing left")])])
    assert [end.reason for end in setting.carry_out()] == [EndReason.QUOTA_EXHAUSTED]


def test_told_to_stop_all_rollouts_end_as_interrupted_and_none_is_started(tmp_path: Path) -> None:
    meeting = threading.Barrier(2, timeout=60)
    setting: Setting

    class Stopping(ScriptedModel):
        def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:
            if meeting.wait() == 0:
                setting.interruption.stop()
            assert setting.interruption.stopping.wait(60)
            return super().query(messages, tools, patience)

    setting = Setting(tmp_path, [Stopping([trial(1.0)]), Stopping([trial(2.0)])], rollouts=9, parallel=2)
    assert [end.reason for end in setting.carry_out()] == 2 * [EndReason.INTERRUPTED]
    for name in setting.run.rollouts():
        assert isinstance(setting.run.events(name)[-1], Ended)
    assert len(setting.run.rollouts()) == 2


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_run_that_was_stopped_goes_on_with_its_rollouts_then_with_its_strategy(tmp_path: Path, parallel: int) -> None:
    """The first process is interrupted in its second rollout; the second one finishes it, then starts the third."""
    first = ScriptedModel([trial(2.0), SUBMIT])
    setting = Setting(tmp_path, [first, ScriptedModel([trial(1.0), KeyboardInterrupt()])], StrategyName.REFINE)
    assert [end.reason for end in setting.carry_out()] == [EndReason.SUBMITTED, EndReason.INTERRUPTED]
    before = turns(setting.run)
    second, third = ScriptedModel([trial(5.0), SUBMIT]), ScriptedModel([SUBMIT])
    again = Setting(tmp_path / "unused", [second, third], StrategyName.REFINE, parallel=parallel)
    again.run = setting.run
    # With two at once the third starts beside the second, from the best by then.
    assert sorted(end.reason for end in again.carry_out()) == 2 * [EndReason.SUBMITTED]
    assert setting.run.rollouts() == ("rollout-1", "rollout-2", "rollout-3")
    events = setting.run.events("rollout-2")
    assert sum(isinstance(event, Resumed) for event in events) == 1
    assert turns(setting.run) == before + 3
    # What was said before the interruption is what the second model hears, without being asked for again.
    assert "idea 1.0" in [message.text for message in second.asked[0]]
    last = started(setting.run)[-1].origin
    best = "speedup=5.0" if parallel == 1 else None
    assert last is not None and (best is None or last.parents == (Candidate(best).id,))


def test_what_was_spent_before_counts_for_the_run(tmp_path: Path) -> None:
    setting = Setting(tmp_path, [ScriptedModel([trial(1.0), trial(2.0), KeyboardInterrupt()])], budget=Limits(turns=5))
    setting.carry_out()
    again = Setting(tmp_path / "unused", [ScriptedModel([trial(3.0) for _ in range(9)])], budget=Limits(turns=5))
    again.run = setting.run
    assert [end.reason for end in again.carry_out()] == [EndReason.TURN_LIMIT]
    assert turns(setting.run) == 5


def next_of(session: Session) -> Callable[[], Ended]:
    work = session.next_work()
    assert work is not None
    return work


def test_a_rollout_that_was_begun_but_wrote_nothing_yet_counts_for_the_strategy(tmp_path: Path) -> None:
    """Otherwise two of the same name were started at once."""
    models = [ScriptedModel([trial(1.0), SUBMIT]) for _ in range(2)]
    setting = Setting(tmp_path, models, rollouts=2, parallel=2)
    session = setting.session()
    works = [next_of(session), next_of(session)]
    assert session.next_work() is None
    assert setting.run.rollouts() == ()
    for work in works:
        work()
    assert setting.run.rollouts() == ("rollout-1", "rollout-2")


def test_a_transcript_that_names_another_folder_is_not_written_there(tmp_path: Path) -> None:
    setting = Setting(tmp_path / "runs", [ScriptedModel([KeyboardInterrupt()])], rollouts=1)
    one_by_one(setting.session().next_work)
    path = setting.run.transcript("rollout-1")
    path.write_text(path.read_text().replace('"rollout":"rollout-1"', '"rollout":"../../../outside"'))
    with pytest.raises(RunFormatError, match=r"is that of '\.\./\.\./\.\./outside'"):
        setting.session().next_work()
    assert not (tmp_path / "outside").exists()

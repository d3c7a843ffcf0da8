"""The judge: answers build, verify and benchmark for candidates of one task on one target.

It owns the reference, the oracle, the seeds, the baselines and the verdicts. It never imports a candidate and never
unpickles anything from one.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Self

from tasks.errors import HarnessError, KernelwrightError, UnavailableError
from tasks.loader import Task
from tasks.spec import Target
from tools import measurement
from tools.brief import brief
from tools.briefing import Briefing
from tools.cache import cache_limit_bytes
from tools.candidate import Candidate
from tools.confinement import tier
from tools.construction import constructed
from tools.disassembly import disassemble_candidate
from tools.disassembly_results import Disassembled
from tools.faults import answered, fault_result, own_fault_result
from tools.lease import building, no_builds
from tools.many_calls import call_often
from tools.measurement import Samples
from tools.pace import Pace
from tools.plausibility import (
    clocks_disagree,
    clocks_disagree_greatly,
    disturbance,
    narrow,
    require_plausible,
    slower_clock_ns,
)
from tools.profile_results import Profiled
from tools.profiling import profile_candidate
from tools.results import (
    Baseline,
    BenchmarkResult,
    BuildResult,
    Built,
    DisassemblyResult,
    Evaluation,
    ProfileResult,
    SanitizeResult,
    Timed,
    Verified,
    VerifyResult,
)
from tools.sanitizer import last_word
from tools.sanitizer_results import Sanitized
from tools.server_process import Processes
from tools.session import Session
from tools.statistics import median_ns
from tools.subject import Limits
from tools.timer import Timer, start_timer
from tools.verdict import Verdict
from tools.verification import verify_candidate
from tools.verification_plan import Planner
from tools.workers import CandidateFault

ATTEMPTS = 4
"""Seen on two cores: one measurement of five in which the answers of one side came a scheduler's tick (4 ms) late; and
on a host of two GPUs one of 180 in which they came 0.1 ms late, for no reason that was found."""
OWN_GPU_PROCESSES = 3
"""On the GPU during a measurement: the judge, the baseline's worker and the candidate's."""


def _quiet(_: str) -> None:
    """Progress that nobody watches."""


class Judge:
    """Answers for one task on one target; a context manager, because it holds processes."""

    def __init__(
        self,
        task: Task,
        target: Target,
        *,
        allow_library: bool = False,
        limits: Limits | None = None,
        fixed_candidates: bool = False,
        processes: Processes | None = None,
        progress: Callable[[str], None] = _quiet,
    ) -> None:
        """`fixed_candidates` says that all were written before the judge was made: their trials are drawn once.

        `processes` fork the workers; they are not ended with this judge, which starts one of its own without them.
        """
        cache_limit_bytes()  # A wrong value is the caller's mistake, not the fault of an evaluation.
        self.task = task
        self.target = target
        self.allow_library = allow_library
        self.idle_neighbours = 0
        """Workers of this process's other judges that stand still on the GPU: their warm baselines."""
        self._progress = progress
        self._sandbox = tier(gpu=target is Target.CUDA)
        self._session = Session(task, target, limits or Limits(), progress, processes=processes)
        self._fixed_candidates = fixed_candidates
        self._planner = Planner(self._session, fixed_candidates=fixed_candidates)
        self._pace = Pace(self._session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process that this judge started."""
        self._pace.close()
        self._session.close()

    def compile(self, candidate: Candidate) -> BuildResult:
        """Does it compile, import and construct?"""
        started = time.monotonic()
        try:
            with building() if self.target is Target.CPU else contextlib.nullcontext():
                extensions, note = constructed(self._session, candidate)
        except CandidateFault as fault:
            return fault_result("build", candidate, fault, self._sandbox, started)
        except Exception as error:
            return own_fault_result("build", candidate, error, started)
        return Built(
            candidate=candidate.id,
            extensions=extensions,
            note=note,
            sandbox=self._sandbox,
            seconds=time.monotonic() - started,
        )

    def verify(self, candidate: Candidate) -> VerifyResult:
        """Is it right?"""
        started = time.monotonic()
        try:
            with self._session.device_lease():
                plan = self._planner.plan()
                verification = verify_candidate(self._session, candidate, plan, allow_library=self.allow_library)
        except CandidateFault as fault:
            return fault_result("verify", candidate, fault, self._sandbox, started)
        except Exception as error:
            return own_fault_result("verify", candidate, error, started)
        return Verified(
            candidate=candidate.id,
            precision=self._session.precision,
            checks=verification.checks,
            determinism=verification.determinism,
            own_kernel_share=verification.own_kernel_share,
            sandbox=self._sandbox,
            seconds=time.monotonic() - started,
        )

    def benchmark(self, candidate: Candidate, against: Candidate | None = None) -> BenchmarkResult:
        """How fast is it, beside the fastest baseline, or beside another candidate where one is given?"""
        started = time.monotonic()
        try:
            with self._undisturbed():
                return self._benchmark(candidate, against, started)
        except CandidateFault as fault:
            return fault_result("benchmark", candidate, fault, self._sandbox, started)
        except Exception as error:
            return own_fault_result("benchmark", candidate, error, started)

    def _benchmark(self, candidate: Candidate, against: Candidate | None, started: float) -> Timed:
        session = self._session
        baseline = self._pace.fastest() if against is None else self._timer_for_other(against)
        try:
            timer = start_timer(session, candidate, watch=not self.allow_library)
            try:
                samples = self._measure(timer, baseline)
                own = OWN_GPU_PROCESSES + session.standing_ahead + self.idle_neighbours
                card = None if session.card is None else session.card.state(own)
                if samples.waits:
                    samples = replace(samples, excess=measurement.launched_excess(timer, baseline, samples))
                require_plausible(session, samples, lambda: measurement.launched_excess(timer, baseline, samples))
                call_often(timer)
                if not self.allow_library:
                    timer.require_own_operators()
                    timer.require_own_code()
                code = None if timer.looks is None else timer.looks.tally.shares()
                prepare_ns = timer.prepare_ns
            finally:
                session.end(timer.subject)
        except HarnessError:
            self._pace.forget(baseline)
            raise
        finally:
            if against is not None:
                baseline.close()
        if card is not None:
            self._pace.note_clock(card.sm_clock_mhz)
        return self._timed(candidate, samples, prepare_ns, against is not None, started).model_copy(
            update={"card": card, "code": code, "disturbance": disturbance(self.target, samples, card)}
        )

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Own the device; on the host also its cores, which builds would share."""
        with contextlib.ExitStack() as held:
            held.enter_context(self._session.device_lease())
            if self.target is Target.CPU:
                held.enter_context(no_builds(self._progress))
            yield

    def _measure(self, timer: Timer, baseline: Timer) -> Samples:
        """Measure, again where the clocks disagree: answers may come late all through one measurement. A lie is in all
        of them, and a great one is seen in two."""
        samples = measurement.interleave(timer, baseline, self._enough, self._session.settle)
        attempts = 1
        while not samples.waits and attempts < ATTEMPTS and clocks_disagree(self.target, samples):
            if attempts > 1 and clocks_disagree_greatly(self.target, samples):
                break
            again = measurement.interleave(timer, baseline, self._enough, self._session.settle)
            # Answers to the baseline that come late would hide what the candidate's say.
            samples = min(samples, again, key=lambda each: abs(each.excess.ns))
            attempts += 1
        return samples

    def _enough(self, samples: Samples) -> bool:
        return narrow(self.target, samples)

    def _timed(self, candidate: Candidate, samples: Samples, prepare_ns: int, other: bool, started: float) -> Timed:
        ours, theirs = slower_clock_ns(self.target, samples), median_ns(samples.baseline)
        name = "candidate" if other else self._pace.fastest_name
        listed = (Baseline(name=name, median_ns=theirs),) if other else self._pace.baselines
        return Timed(
            candidate=candidate.id,
            median_ns=ours,
            baseline=name,
            baseline_ns=theirs,
            speedup=theirs / ours,
            speedup_interval=measurement.speedup_interval(self.target, samples, ours, theirs),
            baselines=listed,
            floor_ns=self._session.workload.floor_ns(self._session.machine),
            prepare_ns=prepare_ns,
            wall_median_ns=median_ns(samples.candidate) + samples.excess.ns,
            candidate_samples_ns=samples.candidate,
            baseline_samples_ns=samples.baseline,
            marks_ns=self._session.marks_ns,
            sandbox=self._sandbox,
            seconds=time.monotonic() - started,
        )

    def evaluate(self, candidate: Candidate, *, strict: bool = False, build: BuildResult | None = None) -> Evaluation:
        """Build, verify and benchmark, as far as it comes; where strict, what was verified is also sanitized.

        `build` is what `compile` answered on this host, where that was asked before.
        """
        build = build or self.compile(candidate)
        found = Evaluation(candidate=candidate.id, task=self.task.name, target=self.target, build=build)
        if not isinstance(build, Built):
            return found
        # One lease for all that follows. Where it cannot be had, each stage tells why.
        with contextlib.ExitStack() as held:
            with contextlib.suppress(KernelwrightError):
                held.enter_context(self._session.device_lease())
            return found.model_copy(update=self._run(candidate, strict=strict))

    def _run(
        self, candidate: Candidate, *, strict: bool
    ) -> dict[str, VerifyResult | Sanitized | BenchmarkResult | None]:
        """The stages of an evaluation that come after the build."""
        session = self._session
        sanitized: Sanitized | None = None
        benchmark: BenchmarkResult | None = None
        session.works_ahead = True
        try:
            verify = self.verify(candidate)
            # Fixed candidates wait; who asks for one after another may take hours for the next.
            session.works_ahead = self._fixed_candidates
            if isinstance(verify, Verified):
                sanitized = last_word(session, candidate) if strict else None
                if sanitized is None or sanitized.verdict is Verdict.CORRECT:
                    benchmark = self.benchmark(candidate)
        finally:
            session.works_ahead = False
        if not self._fixed_candidates:
            session.drop_ahead()
        return {"verify": verify, "sanitizer": sanitized, "benchmark": benchmark}

    def profile(self, candidate: Candidate) -> ProfileResult:
        """Where does its time go? Advice: what the candidate's own process says is not checked."""

        def profiled() -> Profiled:
            with self._undisturbed():
                return profile_candidate(self._session, candidate, self._sandbox)

        return answered("profile", candidate, self._sandbox, profiled)

    def sanitize(self, candidate: Candidate) -> SanitizeResult:
        """What does compute-sanitizer say about it, whether it is right or not?"""
        return answered("sanitizer", candidate, self._sandbox, lambda: last_word(self._session, candidate))

    def disassemble(self, candidate: Candidate, function: str | None = None) -> DisassemblyResult:
        """Which instructions is a kernel of it made of: the one whose name holds `function`, or the first?"""

        def disassembled() -> Disassembled:
            with building() if self.target is Target.CPU else contextlib.nullcontext():
                return disassemble_candidate(self._session, candidate, function)

        return answered("disassembly", candidate, self._sandbox, disassembled)

    def get_ready(self) -> None:
        """Start what evaluations need, while candidates are still being built; on a GPU also time the baselines. On the
        host, where that must wait until nothing is built, they are at least compiled for fixed candidates."""
        _ = self._session.server
        if self.target is Target.CUDA:
            # While the fork server imports PyTorch: what fixed candidates are asked; for others, who are asked
            # something else, it at least brings up the GPU's libraries. What fails here fails in the first evaluation.
            with contextlib.suppress(KernelwrightError), self._session.device_lease():
                self._planner.plan()
            self.baselines()
        elif self._fixed_candidates:
            with contextlib.suppress(KernelwrightError), building():
                self._planner.plan()
                self._pace.prepare()

    @property
    def server_pid(self) -> int | None:
        """The process of its own that workers are forked from; None before the first of them."""
        return self._session.server_pid

    @property
    def leased_s(self) -> float:
        """How long this judge has held the device, all questions together."""
        return self._session.leased_s

    @property
    def warm_workers(self) -> int:
        """How many workers this judge keeps between evaluations."""
        return self._pace.warm + self._session.standing_ahead

    def baselines(self) -> tuple[Baseline, ...]:
        """PyTorch's own times on the benchmark shape, measured once a session; empty where nothing can be run here."""
        try:
            with self._undisturbed():
                self._pace.fastest()
        except UnavailableError:
            return ()
        return self._pace.baselines

    def briefing(self, *, timed: bool = True) -> Briefing:
        """What a model is told before it starts; without the time to beat where it is not to be `timed`."""
        return brief(self._session, self.baselines() if timed else ())

    def _timer_for_other(self, against: Candidate) -> Timer:
        try:
            return start_timer(self._session, against, watch=not self.allow_library)
        except CandidateFault as fault:
            fault.message = f"the candidate to compare with failed: {fault.message}"
            raise

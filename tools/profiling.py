"""Why is it slow: where the time of a candidate's calls on the benchmark shape goes. Advice, never a verdict.

What kernels ran and how long comes from the candidate's own process, which could lie about it: nothing is scored by
it. Outputs are not looked at.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch

from tasks.spec import Target
from tools.candidate import Candidate
from tools.counters import MeasuredCounters, measure_counters
from tools.draws import USUAL, Trial
from tools.host_profile import profile_on_host
from tools.kernel_resources import KernelResources
from tools.library_compute import bare, own_names
from tools.occupancy import DeviceLimits, device_limits, occupancy
from tools.profile_results import KernelProfile, Occupancy, Profiled
from tools.replies import Traced
from tools.results import Extension
from tools.session import Session
from tools.subject import Named
from tools.verdict import Verdict
from tools.workers import CandidateFault

WARM_UP_CALLS = 2
TRACED_CALLS = 5
MOST_KERNELS = 100
"""A worker may tell of any number of them."""


@dataclass(frozen=True)
class _Call:
    """What one call ran, in order."""

    launches: tuple[Traced, ...]

    @property
    def span_ns(self) -> int:
        """From the start of the first to the end of the last; at least 1."""
        return max(1, max(each.start_ns + each.ns for each in self.launches) - self.launches[0].start_ns)

    @property
    def busy_ns(self) -> int:
        """The part of it in which anything ran; launches on several streams may overlap."""
        busy, until = 0, self.launches[0].start_ns
        for each in self.launches:
            end = each.start_ns + each.ns
            busy += max(0, end - max(until, each.start_ns))
            until = max(until, end)
        return busy


def profile_candidate(session: Session, candidate: Candidate, sandbox: str) -> Profiled:
    """Profile a candidate; `sandbox` is the tier it runs in.

    Raises:
        CandidateFault: it fails before or in a call.
        UnavailableError, HarnessError: this machine cannot answer.
    """
    started = time.monotonic()
    _ = session.device
    profiled = _on_host(session, candidate) if session.target is Target.CPU else _on_gpu(session, candidate)
    return profiled.model_copy(update={"sandbox": sandbox, "seconds": time.monotonic() - started})


def _on_host(session: Session, candidate: Candidate) -> Profiled:
    found = profile_on_host(session, candidate)
    return _plain(session, candidate).model_copy(
        update={"calls": found.calls, "call_ns": found.median_ns, "threads": found.threads}
    )


def _on_gpu(session: Session, candidate: Candidate) -> Profiled:
    facts = session.task.facts
    trial = Trial(facts.benchmark_sizes(session.target), USUAL, instance=0)
    state = session.draws.state(session.oracle.template)
    inputs = [session.draws.inputs(facts, trial) for _ in range(TRACED_CALLS)]
    calls, extensions = _trace(session, candidate, trial, inputs, state)
    ran = [call for call in calls if call.launches]
    profiled = _plain(session, candidate)
    if not ran:
        return profiled
    counters = measure_counters(session, candidate, own_names(extensions), inputs[0], state)
    return profiled.model_copy(
        update={
            "calls": len(ran),
            "call_ns": median([call.span_ns for call in ran]),
            "busy_ns": median([call.busy_ns for call in ran]),
            "kernels": kernel_profiles(
                [call.launches for call in ran], extensions, device_limits(torch.cuda.current_device()), counters
            ),
            "counters_missing": counters.missing,
        }
    )


def _plain(session: Session, candidate: Candidate) -> Profiled:
    """What is known without a call."""
    sizes = session.task.facts.benchmark_sizes(session.target)
    return Profiled(
        candidate=candidate.id,
        shape=" ".join(f"{name}={size}" for name, size in sizes.items()),
        calls=0,
        byte_count=session.workload.byte_count,
        flop_count=session.workload.flop_count,
        peak_bytes_per_s=session.machine.peak_bytes_per_s,
        peak_flops_per_s=session.machine.peak_flops_per_s,
        floor_ns=session.workload.floor_ns(session.machine),
    )


def _trace(
    session: Session, candidate: Candidate, trial: Trial, inputs: Sequence[Named], state: dict[str, torch.Tensor]
) -> tuple[list[_Call], tuple[Extension, ...]]:
    """Traced calls after some that are not counted, and what the candidate built."""
    subject = session.subject(candidate, session.memory_bytes(trial.sizes))
    flush_bytes = 2 * session.machine.cache_bytes
    try:
        session.ready(subject, state)
        updated = session.updated_state(state)
        for _ in range(WARM_UP_CALLS):
            subject.trace(inputs[0], updated, flush_bytes)
        answers = [subject.trace(each, updated, flush_bytes) for each in inputs]
        if error := next((answer.launch_error for answer in answers if answer.launch_error), ""):
            raise CandidateFault(
                Verdict.CRASHED,
                f"a kernel launch failed on the benchmark shape: {error}. Check grid, block and shared memory of "
                "<<<...>>>, and look at cudaGetLastError() after each launch.",
            )
        return [_Call(answer.traced) for answer in answers], tuple(subject.worker.extensions)
    finally:
        subject.close()


def kernel_profiles(
    calls: Sequence[Sequence[Traced]],
    extensions: Sequence[Extension],
    limits: DeviceLimits | None,
    counters: MeasuredCounters,
) -> tuple[KernelProfile, ...]:
    """What several calls ran, by kernel, the longest first, and no more than `MOST_KERNELS`.

    Args:
        calls: what each ran; none is empty.
        extensions: what the candidate built.
        limits: the device's, where they are known.
        counters: by the kernels' bare names.
    """
    total = median([sum(each.ns for each in call) for call in calls])
    by_name: dict[str, list[list[Traced]]] = {}
    for number, call in enumerate(calls):
        for each in call:
            by_name.setdefault(each.name, [[] for _ in calls])[number].append(each)
    times = {name: median([sum(each.ns for each in call) for call in own]) for name, own in by_name.items()}
    profiles = []
    for name, ns in sorted(times.items(), key=lambda item: -item[1])[:MOST_KERNELS]:
        own = by_name[name]
        longest = max((each for call in own for each in call), key=lambda each: each.ns)
        profiles.append(
            KernelProfile(
                name=name,
                launches=sum(map(len, own)) / len(calls),
                ns=ns,
                share=ns / total if total else 0.0,
                grid=longest.grid,
                block=longest.block,
                registers=longest.registers,
                shared_bytes=longest.shared_bytes,
                occupancy=_occupancy(longest, limits),
                resources=_resources(name, extensions),
                counters=counters.of(name),
            )
        )
    return tuple(profiles)


def _occupancy(launch: Traced, limits: DeviceLimits | None) -> Occupancy | None:
    if limits is None or launch.grid is None or launch.block is None or launch.registers is None:
        return None
    blocks, threads = (x * y * z for x, y, z in (launch.grid, launch.block))
    shared = launch.shared_bytes or 0
    return occupancy(limits, blocks=blocks, threads=threads, registers=launch.registers, shared_bytes=shared)


def _resources(name: str, extensions: Sequence[Extension]) -> KernelResources | None:
    """What ptxas reported; of several instances of a template, the one whose whole name is the same."""
    built = [kernel for extension in extensions for kernel in extension.kernels]
    same = [kernel for kernel in built if kernel.name == name]
    alike = same or [kernel for kernel in built if bare(kernel.name) == bare(name)]
    return alike[0] if len(alike) == 1 else None

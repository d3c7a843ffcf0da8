"""Writes the briefing of a session's task: what a model is told before it starts."""

from tools.baselines import kernelbench_source
from tools.briefing import Briefing
from tools.draws import input_shape
from tools.oracle import Oracle, describe_state
from tools.results import Baseline
from tools.session import Session


def brief(session: Session, baselines: tuple[Baseline, ...]) -> Briefing:
    """The briefing; without baselines, as where the target cannot run here, it gives no floor either."""
    task, facts = session.task, session.task.facts
    sizes = facts.benchmark_sizes(session.target)
    machine = session.machine_or_host
    oracle = Oracle(task, session.target, "cpu")
    return Briefing(
        task=task.name,
        title=facts.title,
        mode=session.mode,
        target=session.target,
        precision=session.precision,
        source=kernelbench_source(task),
        sizes=sizes,
        input_shapes={spec.name: input_shape(spec, sizes) for spec in facts.inputs},
        parameters=describe_state(oracle.template),
        notes=facts.notes,
        machine=machine,
        flop_count=session.workload.flop_count,
        byte_count=session.workload.byte_count,
        floor_ns=session.workload.floor_ns(machine) if baselines else None,
        baselines=baselines,
    )

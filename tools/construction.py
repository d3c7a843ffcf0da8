"""Does it compile, import and construct: a candidate in a worker without a GPU, only to see what it builds."""

from tasks.spec import Precision
from tools.candidate import Candidate
from tools.draws import USUAL, input_shape, trials
from tools.oracle import Oracle
from tools.replies import Done
from tools.results import Extension
from tools.session import Session
from tools.verdict import Verdict
from tools.workers import CandidateFault


def constructed(session: Session, candidate: Candidate) -> tuple[tuple[Extension, ...], str]:
    """What a candidate builds, and a note where it builds nothing.

    Raises:
        CandidateFault: it does not build, import or construct.
    """
    facts = session.task.facts
    # The reference is only asked for its arguments, on the host: building needs no GPU.
    oracle = Oracle(session.task, session.target, "cpu")
    smallest = trials(facts, session.target, session.host_draws)[1]
    subject = session.subject(candidate, session.input_bytes(smallest.sizes), device="cpu")
    try:
        subject.load("none", allow_tf32=session.precision is Precision.TF32)
        done = subject.construct(oracle.init_inputs, training=session.mode == "train")
        note = ""
        if not done.requested:
            inputs = [
                (spec.name, session.host_draws.input(spec, input_shape(spec, smallest.sizes), USUAL))
                for spec in facts.inputs
            ]
            note = _why_no_extension(subject.probe(inputs))
        if subject.worker.build_faults and not subject.worker.extensions:
            error = subject.worker.build_faults[-1]
            raise CandidateFault(Verdict.BUILD_FAILED, error.message, error.diagnostics)
        return tuple(subject.worker.extensions), note
    finally:
        subject.close()


def _why_no_extension(done: Done) -> str:
    if done.requested:
        return ""
    ended = f", which ended with {done.ended_by}" if done.ended_by else ""
    return f"load_inline was called neither at import nor in __init__ nor in a first call of forward on the CPU{ended}"

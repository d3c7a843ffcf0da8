"""A recording of kernels: what kineto writes of a launch is read, within the sandbox that workers run in."""

from pathlib import Path

from judging import CONVOLUTION, LONG_INPUTS, candidate_of, task_of

from tasks.spec import Target
from tools.draws import USUAL, Trial
from tools.replies import Traced
from tools.server_process import Processes
from tools.session import Session
from tools.subject import Limits
from tools.worker.kernel_trace import launch_of

# As kineto writes them (PyTorch 2.11), shortened.
KERNEL = {
    "ph": "X",
    "cat": "kernel",
    "name": "void conv_kernel<3>(float const*, float*)",
    "pid": 0,
    "tid": 7,
    "ts": 3871627141477.893,
    "dur": 258.498,
    "args": {
        "queued": 0,
        "device": 0,
        "stream": 7,
        "correlation": 4732,
        "registers per thread": 40,
        "shared memory": 4096,
        "blocks per SM": 4.705883,
        "grid": [800, 2, 1],
        "block": [512, 1, 1],
        "est. achieved occupancy %": 100,
    },
}
COPY = {
    "ph": "X",
    "cat": "gpu_memcpy",
    "name": "Memcpy DtoD (Device -> Device)",
    "ts": 1.5,
    "dur": 0.25,
    "args": {"bytes": 64},
}


def test_a_kernels_form_is_that_of_its_launch() -> None:
    assert Traced.model_validate(launch_of(KERNEL)) == Traced(
        name="void conv_kernel<3>(float const*, float*)",
        start_ns=3871627141477893,
        ns=258498,
        grid=(800, 2, 1),
        block=(512, 1, 1),
        registers=40,
        shared_bytes=4096,
    )


def test_a_copy_has_no_form() -> None:
    assert Traced.model_validate(launch_of(COPY)) == Traced(
        name="Memcpy DtoD (Device -> Device)", start_ns=1500, ns=250
    )


def test_a_recording_is_written_and_read_within_the_sandbox(tmp_path: Path, processes: Processes) -> None:
    session = Session(
        task_of(tmp_path, CONVOLUTION, LONG_INPUTS), Target.CPU, Limits(), lambda _: None, processes=processes
    )
    trial = Trial(session.task.facts.benchmark_sizes(Target.CPU), USUAL, instance=0)
    state = session.draws.state(session.oracle.template)
    try:
        subject = session.subject(candidate_of(CONVOLUTION), session.memory_bytes(trial.sizes))
        session.ready(subject, state)
        for _ in range(2):
            done = subject.trace(session.draws.inputs(session.task.facts, trial), session.updated_state(state), 0)
            assert done.traced == (), "a host runs no kernels"
        subject.close()
    finally:
        session.close()

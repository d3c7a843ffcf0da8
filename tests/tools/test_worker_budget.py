"""What a worker takes as a whole is bounded, not only each of its files and processes."""

import os
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from processes import descendants, within
from worker_bench import GOOD, Bench, bench_of

from tools.candidate import Candidate
from tools.server_process import ServerProcess
from tools.usage import Budget, members, usage
from tools.verdict import Verdict
from tools.worker.messages import Load, Region, Timed
from tools.workers import CandidateFault

MIB = 1 << 20
WRITES = "import time\nfor n in range(6):\n    open(f'part-{n}', 'wb').write(bytes(1 << 20))\n"
UNLINKED = (
    "import os, time\nheld = []\nfor n in range(6):\n    held.append(open('part', 'wb'))\n"
    "    held[-1].write(bytes(1 << 20))\n    held[-1].flush()\n    os.unlink('part')\ntime.sleep(50)\n"
)
MEMORY_FILES = (
    "import os, time\nfor n in range(6):\n    os.write(os.memfd_create('part'), bytes(1 << 20))\ntime.sleep(50)\n"
)
FORKS = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        time.sleep(1000)
time.sleep(50)
"""
THREADS = """
import threading, time
threading.stack_size(1 << 16)
for _ in range(60):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
time.sleep(50)
"""
THREADS_OF_CHILDREN = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        import threading
        threading.stack_size(1 << 16)
        for _ in range(20):
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        time.sleep(1000)
time.sleep(50)
"""
TOUCHES_A_GIBIBYTE = "held = bytearray(1 << 30)\nfor at in range(0, 1 << 30, 4096): held[at] = 1\n"
SHARES_IT_WITH_CHILDREN = """
import os, time
held = bytes(range(256)) * (1 << 20)
if os.fork() == 0 or os.fork() == 0 or os.fork() == 0:
    time.sleep(1000)
"""


@pytest.fixture
def bench(as_it_is: ServerProcess) -> Bench:
    """Limits are those of the bench, not of the process that it shares."""
    return bench_of(as_it_is)


def limited(bench: Bench, **limits: int) -> None:
    bench.server.budget = replace(bench.server.budget, **limits)


@pytest.mark.parametrize("text", [WRITES, UNLINKED, MEMORY_FILES], ids=["files", "unlinked", "memory files"])
def test_many_small_files_are_bounded_together(bench: Bench, text: str) -> None:
    limited(bench, disk_bytes=4 * MIB)
    fault = bench.fault(text)
    assert fault.verdict is Verdict.CRASHED
    assert "4 MiB" in fault.message


def test_many_processes_are_killed_all_together(bench: Bench) -> None:
    limited(bench, processes=20)
    with bench.worker():
        pass
    before = descendants(bench.server.pid)
    with bench.worker() as worker:
        with pytest.raises(CandidateFault, match="processes; the limit is 20") as caught:
            bench.ask(worker, FORKS, Load(FORKS, "cpu", allow_tf32=False))
        assert caught.value.verdict is Verdict.CRASHED
        assert within(5, lambda: descendants(bench.server.pid) <= before)


@pytest.mark.parametrize("text", [THREADS, THREADS_OF_CHILDREN], ids=["of one process", "of several"])
def test_sleeping_threads_are_bounded_together(bench: Bench, text: str) -> None:
    """Only processes were counted once; 4,000 threads of one made every stop of it take a tenth of a second."""
    limited(bench, threads=50)
    fault = bench.fault(text)
    assert fault.verdict is Verdict.CRASHED
    assert re.fullmatch(
        r"the worker ran \d+ threads; the limit is 50\. It was killed, with all it had started\.", fault.message
    )


def test_threads_are_those_that_the_kernel_lists(tmp_path: Path) -> None:
    released = threading.Event()
    started = [threading.Thread(target=released.wait) for _ in range(7)]
    for thread in started:
        thread.start()
    try:
        listed = sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in members(os.getpgrp()))
        assert usage(os.getpgrp(), tmp_path, Budget(memory_bytes=1 << 40)).threads == listed > len(started)
    finally:
        released.set()
        for thread in started:
            thread.join()


def test_no_honest_program_reaches_the_limit_of_threads() -> None:
    """PyTorch's two pools, OpenMP and BLAS have a thread for each processor at most."""
    assert Budget(memory_bytes=1).threads >= 256 + 4 * (os.cpu_count() or 1)


def test_resident_memory_is_bounded_on_every_target(bench: Bench) -> None:
    """The limit on allocations does not hold for the cuda target, nor for children together."""
    limited(bench, memory_bytes=700 * MIB)
    fault = bench.fault(TOUCHES_A_GIBIBYTE)
    assert fault.verdict is Verdict.OUT_OF_MEMORY
    assert "of memory resident" in fault.message


def test_memory_that_children_share_counts_once(bench: Bench) -> None:
    """Four processes with the same 256 MiB and the same PyTorch have 2 GiB resident if added up blindly."""
    limited(bench, memory_bytes=1300 * MIB)
    with bench.worker() as worker:
        bench.load(worker, SHARES_IT_WITH_CHILDREN + GOOD)
        time.sleep(0.1)
        bench.load(worker, GOOD)


def test_what_is_taken_between_two_questions_is_seen_before_the_next_timed_call(bench: Bench) -> None:
    """A timed call itself is waited for without looking, for a second at least."""
    with bench.worker() as worker:
        bench.load(worker, GOOD)
        worker.budget = replace(worker.budget, processes=0)
        time.sleep(1.1)
        timed = Timed((), (), Region(0, 0), gate=0, held=0)
        with pytest.raises(CandidateFault, match="processes"):
            worker.begin(timed, 1.0, 10.0, bench.builder, Candidate(GOOD))
        assert not worker.alive

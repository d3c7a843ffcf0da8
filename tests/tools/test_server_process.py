"""The fork server's process: what needs no PyTorch, what several use, and what is imported for torch.compile."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from fake_driver import build_fake_driver
from processes import ROOT, descendants, running, within
from tiers import needs_bubblewrap, without_bubblewrap
from worker_bench import GOOD, MEMORY_BYTES, bench_of

from tasks.loader import Task, find_task
from tasks.spec import Target
from tools import confinement
from tools.jobs import Ask, Job, JobTask
from tools.lease import no_builds
from tools.members import MemberEndedError, MemberProcess
from tools.pool_process import Judges
from tools.server_process import Processes, ServerProcess
from tools.servers import Servers

IMPORTED = """
import sys
raise RuntimeError("torch._inductor.compile_fx" in sys.modules)
"""
KEYS = """
from torch._inductor.codecache import torch_key
from torch._inductor.runtime.triton_compat import triton_key
import time
began = time.perf_counter()
torch_key(), triton_key()
raise RuntimeError(time.perf_counter() - began < 0.05)
"""

HEADERS = """
import os
from torch._inductor.codecache import _HEADER_DIR
os.makedirs(_HEADER_DIR)
with open(os.path.join(_HEADER_DIR, "header.h"), "w") as file:
    file.write("// Mine.")
"""


@pytest.fixture(scope="module")
def process() -> Iterator[ServerProcess]:
    made = ServerProcess.for_target(Target.CPU, compiles=True)
    yield made
    made.close()


def python(code: str) -> str:
    """What a program prints that is started as processes of the pool are."""
    argv = [sys.executable, "-P", "-c", textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_is_started_without_pytorch() -> None:
    """Starting it only after the judge's own import of PyTorch took every process of a pool two seconds more."""
    assert (
        python("import sys, tools.pool_process; print('torch' in sys.modules, 'numpy' in sys.modules)") == "False False"
    )


def test_several_fork_servers_use_it_and_none_of_them_ends_it(process: ServerProcess) -> None:
    one, other = bench_of(process), bench_of(process)
    with one.worker() as worker:
        one.load(worker, GOOD)
        with other.worker() as another:
            other.load(another, GOOD)
            assert worker.number != another.number
        other.server.close()
        assert worker.alive and not one.server.ended(worker.number)
    assert one.server.pid == other.server.pid == process.pid


def test_only_what_compiles_imports_for_it(process: ServerProcess, as_it_is: ServerProcess) -> None:
    assert "RuntimeError: True" in bench_of(process).fault(IMPORTED).message
    assert "RuntimeError: False" in bench_of(as_it_is).fault(IMPORTED).message


def test_a_worker_that_may_compile_finds_the_hashes_of_pytorch_and_triton_made(process: ServerProcess) -> None:
    """Each baseline hashed all files of both: a second and a half."""
    bench = bench_of(process)
    worker = bench.server.spawn(MEMORY_BYTES, trusted=True)
    try:
        with pytest.raises(Exception, match="RuntimeError: True"):
            bench.load(worker, KEYS)
    finally:
        worker.close()


@pytest.mark.parametrize("namespaces", [pytest.param(True, marks=needs_bubblewrap), False])
def test_a_worker_that_may_compile_writes_headers_where_pytorch_wants_them(
    namespaces: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PyTorch keeps the folder of the time when it was imported, which no worker could write: without its headers,
    torch.compile was no baseline on the host."""
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    if not namespaces:
        monkeypatch.setattr(confinement, "lacks_bubblewrap", without_bubblewrap)
    process = ServerProcess.for_target(Target.CPU, compiles=True)
    try:
        bench = bench_of(process)
        worker = bench.server.spawn(MEMORY_BYTES, trusted=True)
        bench.load(worker, HEADERS + GOOD)
        worker.close()
    finally:
        process.close()
    assert [path.read_text() for path in tmp_path.rglob("header.h")] == ["// Mine."]


def test_where_importing_the_compiler_loads_the_driver_it_begins_anew_without(tmp_path: Path) -> None:
    """What has touched the driver can fork no worker that uses CUDA."""
    driver = build_fake_driver(tmp_path) / "libcuda.so.1"
    said = python(f"""
        import ctypes, importlib, os, sys
        sys.argv = ["fork_server.py", "7", "compiles", "/some/folder"]
        from tools.worker import fork_server
        importlib.import_module = lambda name: ctypes.CDLL({str(driver)!r}) if "inductor" in name else None
        os.execv = lambda program, argv: print(argv[-3:])
        fork_server._import_compiler()
        fork_server._import_compiler()
    """)
    # The second time it was there before.
    assert said.splitlines()[1:] == ["['7', 'plain', '/some/folder']"]


def test_a_lane_that_is_killed_while_all_import_leaves_none_of_them(task_ask: Ask) -> None:
    member = MemberProcess("lane", print)

    def ask() -> None:
        with pytest.raises(MemberEndedError):
            member.ask(task_ask)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        assert within(20, lambda: sum(b"fork_server.py" in arguments(pid) for pid in descendants(member.pid)) >= 2)
        started = descendants(member.pid)
        os.kill(member.pid, signal.SIGKILL)
        assert within(30, lambda: not any(map(running, started)))
    finally:
        member.close()
        asking.join()


def arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def task_ask() -> Ask:
    job = Job(task=JobTask.of(find_task("causal_conv")), target=Target.CPU, text="")
    return Ask(job=job, only_get_ready=True)


class FakeJudge:
    """Has what `Judges` asks of a judge."""

    warm_workers = 0
    idle_neighbours = 0
    server_pid = None

    def __init__(self, task: Task, _target: Target, *, processes: Processes, **_named: object) -> None:
        self.task = task
        self.processes = processes
        self.closed = False

    def close(self) -> None:
        assert not any(ended(self.processes))
        self.closed = True


class Fake:
    """In place of a process."""

    def __init__(self, *, compiles: bool) -> None:
        self.compiles = compiles
        self.closed = False
        self.pid = id(self)

    @classmethod
    def for_target(cls, _target: Target, *, compiles: bool = False) -> "Fake":
        return cls(compiles=compiles)

    def await_ready(self) -> None:
        """It is."""

    def hang_up(self) -> None:
        """Nobody waits for it."""

    def close(self) -> None:
        assert not self.closed
        self.closed = True


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.servers.ServerProcess", Fake)


def fakes_of(processes: Processes | None) -> list[Fake]:
    """What is in the place of processes."""
    assert processes is not None
    servers: Iterable[object] = filter(None, processes)
    return [server for server in servers if isinstance(server, Fake)]


def kinds(processes: Processes | None) -> list[bool]:
    return [server.compiles for server in fakes_of(processes)]


def ended(*several: Processes | None) -> list[bool]:
    return [server.closed for processes in several for server in fakes_of(processes)]


@pytest.mark.usefixtures("fakes")
def test_a_lane_has_one_for_baselines_and_a_builder_has_none() -> None:
    lane, builder = Servers("lane"), Servers("builder")
    assert kinds(lane.of(Target.CPU)) == [False, True]
    assert kinds(builder.of(Target.CPU)) == [False]
    assert lane.of(Target.CPU) is lane.of(Target.CPU)
    assert len(lane.pids) == 2


@pytest.mark.usefixtures("fakes")
def test_what_may_have_failed_is_replaced_and_ends_with_the_last_that_uses_it() -> None:
    servers = Servers("lane")
    first = servers.of(Target.CPU)
    servers.replace(first)
    second = servers.of(Target.CPU)
    assert second is not first
    servers.end_unused([first])
    assert not any(ended(first, second))
    assert len(servers.pids) == 4
    servers.end_unused([second, None])
    assert ended(first, second) == [True, True, False, False]
    servers.close()
    assert all(ended(second))
    assert not servers.pids


@pytest.mark.usefixtures("fakes")
def test_a_builder_for_the_host_starts_its_own_only_when_it_may_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Importing PyTorch takes a core for seconds, which a measurement would notice."""
    monkeypatch.setenv("KERNELWRIGHT_LEASES", str(tmp_path))
    builder, lane = Servers("builder"), Servers("lane")
    with no_builds(print):
        builder.start(Target.CPU)
        lane.start(Target.CPU)
        assert within(5, lambda: len(lane.pids) == 2)
        time.sleep(0.3)
        assert not builder.pids
    assert kinds(builder.of(Target.CPU)) == [False]


@pytest.mark.usefixtures("fakes")
def test_judges_share_them_and_one_that_is_forgotten_leaves_the_others_theirs() -> None:
    servers = Servers("lane")
    make: Any = FakeJudge
    judges = Judges(make, servers, print)
    causal, depthwise = (
        Job(task=JobTask.of(find_task(name)), target=Target.CPU, text="")
        for name in ("causal_conv", "depthwise_separable")
    )
    first, second = (cast(FakeJudge, judges.of(job)) for job in (causal, depthwise))
    assert first.processes is second.processes
    judges.forget(causal)
    assert first.closed
    again = cast(FakeJudge, judges.of(causal))
    assert again.processes is not second.processes
    judges.forget(depthwise)
    assert all(ended(second.processes))
    judges.close()
    assert again.closed
    assert all(ended(again.processes))

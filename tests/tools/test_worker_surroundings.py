"""What a worker sees and leaves: its own folder, no secrets, a bounded noise, and nothing once it has ended."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from processes import descendants, running, within
from worker_bench import GOOD, Bench, started_bench

from tasks.errors import HarnessError
from tools.verdict import Verdict


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def bench(home: Path) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(home))
        patch.setenv("OPENAI_API_KEY", "secret-value")
        patch.setenv("PYTHONPATH", "/somewhere/else")
        bench = started_bench()
    yield bench
    bench.server.close()


def told(bench: Bench, code: str) -> str:
    """What an expression evaluates to in a worker."""
    return bench.fault(f"import os\nraise RuntimeError({code})\n").message


def test_no_secrets_and_none_of_our_surroundings(bench: Bench) -> None:
    assert "secret-value" not in told(bench, "repr(dict(os.environ))")
    assert "PYTHONPATH" not in told(bench, "repr(dict(os.environ))")


def test_it_lives_in_a_folder_of_its_own(bench: Bench, home: Path) -> None:
    places = told(bench, "' '.join([os.getcwd(), os.environ['HOME'], os.environ['TMPDIR']])")
    first, second, third = places.removeprefix("RuntimeError: ").split()[:3]
    assert first == second == third
    assert Path(first).is_relative_to(home)
    assert not Path(first).exists()


DESCRIPTORS = """
import os
held = []
for fd in range(3, 64):
    try:
        held.append(os.readlink(f"/proc/self/fd/{fd}").split(":")[0])
    except OSError:
        pass
raise RuntimeError(" ".join(held))
"""


def test_it_holds_no_descriptor_of_the_server_or_of_another_worker(bench: Bench) -> None:
    with bench.worker():
        held = bench.fault(DESCRIPTORS).message.partition(" (candidate.py")[0].removeprefix("RuntimeError: ").split()
    # The control socket, and the shared memory as it was handed over and as it is mapped.
    assert sorted(held) == ["/memfd", "/memfd", "socket"]


def test_it_leads_a_group_of_its_own(bench: Bench) -> None:
    assert "RuntimeError: True " in told(bench, "str(os.getpgid(0) == os.getpid() == os.getsid(0))")


def test_floods_of_output_reach_nobody(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    with bench.worker() as worker:
        bench.load(worker, f"import os\nfor fd in (1, 2): os.write(fd, b'noise\\n' * 1_000_000)\nprint('more')\n{GOOD}")
    assert capfd.readouterr() == ("", "")


def test_the_end_of_what_was_printed_is_told_of_a_crash(bench: Bench) -> None:
    fault = bench.fault("import os\nprint('early ' * 100_000)\nprint('CUDA error 700', flush=True)\nos.abort()\n")
    assert fault.verdict is Verdict.CRASHED
    assert "CUDA error 700" in fault.message
    assert len(fault.message) < 2500


def test_files_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.server, "budget", replace(bench.server.budget, disk_bytes=1 << 20))
    fault = bench.fault("open('large', 'wb').write(bytes(2 << 20))\n")
    assert fault.verdict is Verdict.CRASHED
    assert "File too large" in fault.message


def test_children_end_with_their_worker(bench: Bench) -> None:
    text = (
        "import os, subprocess, sys, time\n"
        "child = os.fork()\n"
        "if child == 0:\n    time.sleep(1000)\n"
        "subprocess.Popen(['sleep', '1000'])\n"
    )
    with bench.worker() as worker:
        bench.load(worker, text + GOOD)
        children = descendants(worker.pid)
        assert len(children) == 2
    assert within(5, lambda: not any(running(pid) for pid in children))


def test_a_crash_is_told_at_once_although_a_child_lives_on(bench: Bench) -> None:
    """The child holds the control socket open, so the end of the stream does not come."""
    text = "import os, time\nif os.fork() == 0:\n    time.sleep(1000)\nos.abort()\n"
    bench.timeout_s, before = 10.0, bench.timeout_s
    fault = bench.fault(text)
    bench.timeout_s = before
    assert fault.verdict is Verdict.CRASHED


def test_a_crash_is_told_at_once_although_a_child_that_python_knows_nothing_of_lives_on(bench: Bench) -> None:
    """Only os.fork closes the child's copy of the control socket: this once read as a timeout."""
    text = "import ctypes, os, time\nif ctypes.CDLL(None).fork() == 0:\n    time.sleep(1000)\nos.abort()\n"
    started = time.monotonic()
    assert bench.fault(text).verdict is Verdict.CRASHED
    assert time.monotonic() - started < bench.timeout_s / 2


def test_nothing_is_left_of_a_server(home: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(home))
        before = set(home.iterdir())
        bench = started_bench()
    with bench.worker() as worker:
        bench.load(worker, GOOD)
    with bench.worker() as worker:
        (folder,) = set(home.iterdir()) - before
        started = {bench.server.pid, *descendants(bench.server.pid)}
        assert {bench.server.pid, worker.pid} < {*started, 0}
        bench.server.close()
        assert within(5, lambda: not any(running(pid) for pid in started))
        assert not folder.exists()


def test_a_worker_that_cannot_be_set_up_is_our_fault_and_told_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge itself held the worker's end of the socket open, and waited for two minutes."""
    setup = bench.server._worker_setup
    broken = {"file_limit_bytes": "no number"}
    monkeypatch.setattr(bench.server, "_worker_setup", lambda *given, **named: setup(*given, **named) | broken)
    started = time.monotonic()
    with pytest.raises(HarnessError, match="could not be set up"):
        bench.server.spawn(4096)
    assert time.monotonic() - started < 30


def test_a_server_that_is_gone_is_our_fault() -> None:
    bench = started_bench()
    with bench.worker() as worker:
        bench.load(worker, GOOD)
    os.killpg(bench.server.pid, signal.SIGKILL)
    bench.server._process._process.wait()
    with pytest.raises(HarnessError, match="fork server"):
        bench.server.spawn(4096)
    bench.server.close()

"""What a confined process can no longer do; every attempt is made by a real process in the sandbox of workers."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from processes import descendants
from tiers import TIERS, Tier, by_the_kernel, needs_landlock

from tasks.errors import HarnessError
from tools.build import Builder
from tools.candidate import Candidate
from tools.confinement import for_compiler, for_worker
from tools.fork_server import ForkServer
from tools.process import scrubbed_environment
from tools.server_process import ServerProcess
from tools.toolchain import find_toolchain
from tools.verdict import Verdict
from tools.worker.messages import Load
from tools.worker.sandbox import parts
from tools.workers import CandidateFault

REFUSED = {"PermissionError", "FileNotFoundError", "ProcessLookupError", "OSError"}
"""Forbidden, not there, not to be seen, or on a read-only file system."""


def attempt(code: str, scratch: Path, tier: Tier) -> str:
    """Run Python code confined like a worker; what it printed, or the name of the exception that ended it."""
    body = textwrap.indent(textwrap.dedent(code), "    ")
    script = f"try:\n{body}\nexcept OSError as error:\n    print(type(error).__name__)"
    argv = tier(for_worker(scratch, read=[], write=[]), [sys.executable, "-I", "-S", "-c", script])
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, env=scrubbed_environment(), cwd=scratch
    )
    return (done.stdout + done.stderr).strip()


@pytest.mark.parametrize("tier", TIERS)
def test_the_private_folder_can_be_written_and_read(tmp_path: Path, tier: Tier) -> None:
    code = "open('note', 'w').write('kept'); print(open('note').read())"
    assert attempt(code, tmp_path, tier) == "kept"


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("place", ["{other}/note", "/note", "/tmp/note", "/dev/note", "/etc/note", "/usr/note"])
def test_nothing_else_can_be_written(tmp_path: Path, tier: Tier, place: str) -> None:
    private, other = tmp_path / "private", tmp_path / "other"
    private.mkdir()
    other.mkdir()
    path = Path(place.format(other=other))
    assert attempt(f"open({str(path)!r}, 'w')", private, tier) in REFUSED
    assert not path.exists()


@pytest.mark.parametrize("tier", TIERS)
def test_files_outside_the_system_and_python_cannot_be_read(tmp_path: Path, tier: Tier) -> None:
    private, secret = tmp_path / "private", tmp_path / "key"
    private.mkdir()
    secret.write_text("sk-secret")
    assert attempt(f"print(open({str(secret)!r}).read())", private, tier) in REFUSED


@pytest.mark.parametrize("tier", TIERS)
def test_disks_and_memory_cannot_be_read_as_devices(tmp_path: Path, tier: Tier) -> None:
    """All of /dev was once among the folders; for root it holds every disk."""
    code = """
        import os, stat
        for name in os.listdir("/dev") if os.access("/dev", os.R_OK) else ("mem", "sda", "vda", "nvme0n1"):
            path = f"/dev/{name}"
            try:
                if name == "mem" or stat.S_ISBLK(os.stat(path).st_mode):
                    os.open(path, os.O_RDONLY)
                    print("opened", path)
            except OSError:
                pass
    """
    assert attempt(code, tmp_path, tier) in ("", *REFUSED)


@pytest.mark.parametrize("tier", TIERS)
def test_services_are_out_of_reach(tmp_path: Path, tier: Tier) -> None:
    """/run holds containers' secrets, and sockets of services that act for root."""
    assert attempt("import os; print(os.listdir('/run'))", tmp_path, tier) in REFUSED


@pytest.mark.parametrize("tier", TIERS)
def test_processes_outside_cannot_be_signalled(tmp_path: Path, tier: Tier) -> None:
    outside = subprocess.Popen(["sleep", "60"])
    try:
        assert attempt(f"import os; os.kill({outside.pid}, 0); print('signalled')", tmp_path, tier) in REFUSED
    finally:
        outside.kill()
        outside.wait()


@pytest.mark.skipif("seccomp" not in parts(), reason="the filter of system calls is written for x86-64")
@pytest.mark.parametrize("kind", ["AF_INET, socket.SOCK_STREAM", "AF_INET, socket.SOCK_DGRAM", "AF_INET6"])
def test_no_network_socket_can_be_made(tmp_path: Path, kind: str) -> None:
    code = f"import socket; socket.socket(socket.{kind}); print('made')"
    assert attempt(code, tmp_path, by_the_kernel) == "PermissionError"


@pytest.mark.skipif("seccomp" not in parts(), reason="the filter of system calls is written for x86-64")
@pytest.mark.parametrize(
    "call",
    ["shmget(0, 4096, 0o1600)", "semget(0, 1, 0o1600)", "msgget(0, 0o1600)", "mq_open(b'/left', 0o102, 0o600, 0)"],
)
def test_nothing_can_be_made_that_outlives_its_process(tmp_path: Path, call: str) -> None:
    """A segment of a worker's was still there after its judge had gone, for any later worker to read."""
    assert called(call, tmp_path) == "Operation not permitted"


@pytest.mark.skipif("seccomp" not in parts(), reason="the filter of system calls is written for x86-64")
@pytest.mark.parametrize(
    "call",
    ["timer_create(1, None, ctypes.byref(made))", "timerfd_create(1, 0)", "syscall(206, 8, ctypes.byref(made))"],
)
def test_the_kernel_does_nothing_for_a_process_that_is_stopped(tmp_path: Path, call: str) -> None:
    """Twenty thousand timers took a processor from the baseline while their worker stood still."""
    assert called(call, tmp_path) == "Operation not permitted"


def called(call: str, folder: Path) -> str:
    """What the kernel says of a call of the C library's, made in the sandbox; `False` where it is carried out."""
    code = f"""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        made = ctypes.c_void_p()
        print(libc.{call} < 0 and os.strerror(ctypes.get_errno()))
    """
    return attempt(code, folder, by_the_kernel)


@needs_landlock
def test_a_compiler_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    """`-wrapper` makes g++ run any program; it once ran before the precompiled header was confined."""
    work, other = tmp_path / "work", tmp_path / "other"
    work.mkdir()
    other.mkdir()
    argv = for_compiler(work, read=[]).command(["/bin/sh", "-c", f"touch {other}/mark; touch {work}/mark"])
    subprocess.run(argv, capture_output=True, timeout=60, check=False)
    assert (work / "mark").exists()
    assert not (other / "mark").exists()


def test_a_worker_that_cannot_be_set_up_is_the_harness_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_it_is: ServerProcess
) -> None:
    server = ForkServer(process=as_it_is)
    monkeypatch.setattr(server, "_worker_setup", lambda *_args, **_kwargs: {"scratch": str(tmp_path / "missing")})
    with pytest.raises(HarnessError, match="could not be set up"):
        server.spawn(4096)


def test_what_a_worker_leaves_running_is_ended(as_it_is: ServerProcess) -> None:
    """A daemon outlives its process group; it must not outlive the worker."""
    text = textwrap.dedent("""
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        os.wait()
        raise RuntimeError("daemon left")
    """)
    server = ForkServer(process=as_it_is)
    server.spawn(4096).close()
    before = descendants(server.pid)
    worker = server.spawn(4096)
    with pytest.raises(CandidateFault) as caught:
        worker.ask(Load(text, "cpu", True), 30, Builder(find_toolchain()), Candidate(text))
    assert caught.value.verdict is Verdict.CRASHED
    worker.close()
    assert descendants(server.pid) <= before

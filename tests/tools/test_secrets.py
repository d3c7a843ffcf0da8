"""A key in the environment of the harness stays there, whatever a worker or a compiler reads."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiers import TIERS, Tier, without_bubblewrap
from worker_bench import started_bench

from tools import confinement
from tools.confinement import for_compiler, for_worker
from tools.process import run
from tools.toolchain import find_host_compiler
from tools.worker.sandbox import landlock_version

SECRET = "sk-not-for-candidates"
# Every process in sight, by all that the kernel tells of one; an opened file descriptor and a root folder lead further.
SEARCH = """
import os
places = ["environ", "task/{pid}/environ", "cmdline", "stack", "root/proc/{pid}/environ", "cwd/proc/{pid}/environ"]
try:
    numbers = [name for name in os.listdir("/proc") if name.isdigit()]
except OSError:
    numbers = range(1, 70_000)
for pid in [OUTSIDE, *numbers, "self", "thread-self"]:
    for place in places:
        try:
            if b"SECRET" in open(f"/proc/{pid}/{place.format(pid=pid)}", "rb").read():
                print("found in", pid, place)
        except OSError:
            pass
print("searched")
"""


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process with a key in its environment as it was started, like the harness of a caller who exported one."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    process = subprocess.Popen(["sleep", "300"])
    yield process.pid
    process.kill()
    process.wait()


def test_the_search_finds_what_is_not_protected(tmp_path: Path, harness: int) -> None:
    script = SEARCH.replace("SECRET", SECRET).replace("OUTSIDE", str(harness))
    done = run([sys.executable, "-I", "-S", "-c", script], cwd=tmp_path, timeout_s=60)
    assert f"found in {harness} environ" in done.output


@pytest.mark.parametrize("tier", TIERS)
def test_a_worker_cannot_read_a_key(tmp_path: Path, tier: Tier, harness: int) -> None:
    # Not as it is: the script stands in its own process's command line.
    disguised = f"bytes.fromhex('{SECRET.encode().hex()}')"
    script = SEARCH.replace('b"SECRET"', disguised).replace("OUTSIDE", str(harness))
    argv = tier(for_worker(tmp_path, read=[], write=[]), [sys.executable, "-I", "-S", "-c", script])
    assert run(argv, cwd=tmp_path, timeout_s=120).output == "searched\n"


@pytest.mark.parametrize("tier", ["as it is", "kernel"])
def test_a_candidate_cannot_read_a_key(harness: int, tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is forked rather than started, and its server was started by the harness itself."""
    if tier == "kernel":
        if not landlock_version():
            pytest.skip("needs a kernel with Landlock")
        monkeypatch.setattr(confinement, "lacks_bubblewrap", without_bubblewrap)
    disguised = f"bytes.fromhex('{SECRET.encode().hex()}')"
    script = SEARCH.replace('b"SECRET"', disguised).replace("OUTSIDE", str(harness))
    bench = started_bench()
    try:
        text = "found = []\nprint = lambda *words: found.append(words)\n" + script + "raise RuntimeError(found)\n"
        assert bench.fault(text).message.startswith("RuntimeError: [('searched',)] (candidate.py")
    finally:
        bench.server.close()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("whose", ["the harness", "its own"])
@pytest.mark.parametrize("source", ['#include "{path}"', 'asm(".incbin \\"{path}\\"");'], ids=["include", "incbin"])
def test_a_compiler_cannot_read_a_key(tmp_path: Path, tier: Tier, whose: str, source: str, harness: int) -> None:
    compiler = find_host_compiler()
    assert compiler is not None
    path = f"/proc/{harness if whose == 'the harness' else 'self'}/environ"
    (tmp_path / "main.cpp").write_text(source.format(path=path) + "\n")
    argv = tier(for_compiler(tmp_path, read=[]), [compiler, "-c", "main.cpp", "-o", "main.o"])
    done = run(argv, cwd=tmp_path, timeout_s=60)
    made = tmp_path / "main.o"
    assert SECRET not in done.output
    assert SECRET.encode() not in (made.read_bytes() if made.exists() else b"")
    if whose == "the harness":
        assert done.returncode != 0


@pytest.mark.parametrize("tier", TIERS)
def test_a_compilers_response_file_is_no_way_to_a_key(tmp_path: Path, tier: Tier, harness: int) -> None:
    compiler = find_host_compiler()
    assert compiler is not None
    argv = tier(for_compiler(tmp_path, read=[]), [compiler, f"@/proc/{harness}/environ"])
    assert SECRET not in run(argv, cwd=tmp_path, timeout_s=60).output

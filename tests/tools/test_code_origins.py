"""Whose library another process computes in, seen from outside of it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.code_origins import Origin, Origins, Place
from tools.elf_functions import functions_of
from tools.instruction_pointers import Look, look, stopped
from tools.mappings import Mappings, as_mapped

LIBRARY = """
int first(int x) { volatile int y = x; return y + 1; }
void spin(void) { for (volatile int i = 0;; ++i) {} }
"""
CHILD = """
import ctypes, sys
print("ready", flush=True)
sys.stdin.readline()
exec(sys.argv[1])
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (folder / "it.c").write_text(LIBRARY)
    # Named like the C library's mathematics: a name says nothing.
    built = folder / "libm.so.6"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", built, folder / "it.c"], check=True)
    return built


@contextmanager
def at_work(code: str) -> Iterator[tuple[int, Origins]]:
    """A process that is carrying out some code, and what its files were before."""
    # In a group of its own, as a worker is.
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            assert child.stdout.readline() == "ready\n"
            origins = Origins(child.pid)
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "at work\n"
            yield child.pid, origins
        finally:
            child.kill()


def looked_at(pid: int) -> tuple[Look, Mappings]:
    """A look that shows something: a process that has said that it is at work may not be yet."""
    for _ in range(200):
        time.sleep(0.01)
        with stopped(pid) as pids:
            assert pids == [pid]
            found = look(pids)
            if found.points:
                return found, Mappings(pid)
    raise AssertionError("nothing was at work")


def seen(code: str, origin: Origin, own: Path | None = None) -> Place:
    """A place of this origin that a process is seen in within some looks."""
    with at_work(code) as (pid, origins):
        places = []
        for _ in range(50):
            found, mappings = looked_at(pid)
            libraries = {} if own is None else as_mapped([own])
            places = [origins.place(point.pid, point.address, mappings, libraries) for point in found.points]
            for place in places:
                if place is not None and place.origin is origin:
                    return place
    raise AssertionError(places)


def test_a_process_that_was_looked_at_goes_on() -> None:
    with at_work("print('at work', flush=True)\nwhile True: pass") as (pid, _):
        looked_at(pid)
        before = time.clock_gettime_ns(~pid << 3 | 2)
        time.sleep(0.2)
        assert time.clock_gettime_ns(~pid << 3 | 2) > before


def test_numpy_is_another_library() -> None:
    place = seen(
        "import numpy\nx = numpy.ones((400, 400))\nprint('at work', flush=True)\nwhile True: x @ x", Origin.LIBRARY
    )
    assert "blas" in place.name or "numpy" in place.name or "multiarray" in place.name


def spinning(library: Path) -> str:
    return f"library = ctypes.CDLL({str(library)!r})\nprint('at work', flush=True)\nlibrary.spin()"


def test_what_was_built_for_a_candidate_is_its_own(library: Path) -> None:
    seen(spinning(library), Origin.OWN, library)


def test_a_library_is_known_by_its_file_and_not_by_its_name(library: Path) -> None:
    assert seen(spinning(library), Origin.LIBRARY).name == "libm.so.6 (an unknown file)"


def test_functions_are_found_as_nm_lists_them(library: Path) -> None:
    """`nm` gives addresses; the library's code is loaded from the same offsets in its file."""
    listed = subprocess.run(["nm", "-S", library], capture_output=True, text=True, check=True).stdout
    parts = next(line.split() for line in listed.splitlines() if line.endswith(" first"))
    start, size = int(parts[0], 16), int(parts[1], 16)
    functions = functions_of(library)
    assert functions.at(start) == functions.at(start + size - 1) == "first"
    assert functions.at(start + size) != "first"

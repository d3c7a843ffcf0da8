"""Whose code runs in another process is told from outside, and a few stray looks accuse nobody."""

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.code_origins import Origin, Origins, Place
from tools.code_shares import Tally, at_least
from tools.elf_functions import functions_of
from tools.instruction_pointers import can_be_read, look, stopped
from tools.mappings import Mappings, as_mapped, opened

SPIN = b"\xeb\xfe"
"""The x86-64 instruction that jumps to itself."""
GENERATED = f"""
import ctypes, mmap, sys
code = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
code.write({SPIN!r})
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
print(address, flush=True)
sys.stdin.readline()
ctypes.CFUNCTYPE(None)(address)()
"""
OVERWRITTEN = f"""
import ctypes, sys
libc = ctypes.CDLL(None)
address = ctypes.cast(libc.labs, ctypes.c_void_p).value
libc.mprotect(ctypes.c_void_p(address & -4096), 8192, 7)
print(address, flush=True)
sys.stdin.readline()
ctypes.memmove(address, {SPIN!r}, 2)
ctypes.CFUNCTYPE(None)(address)()
"""
PYTHON = "import sys\nprint(0, flush=True)\nsys.stdin.readline()\nwhile True: pass"


def seen(code: str) -> tuple[int, list[tuple[int, Place | None]]]:
    """What a program printed, and where it is at work once it was told to go on."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        printed = int(process.stdout.readline())
        if not can_be_read(process.pid):
            pytest.skip("this kernel does not tell what other processes' threads are at")
        origins = Origins(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        for _ in range(50):
            time.sleep(0.1)
            with stopped(process.pid) as pids:
                assert pids == [process.pid]
                found = look(pids)
                assert not found.hidden
                mappings = Mappings(process.pid)
                places = [(each.address, origins.place(each.pid, each.address, mappings, {})) for each in found.points]
            if places:
                return printed, places
        return printed, []
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


on_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the program holds x86-64 instructions")


@on_x86
@pytest.mark.parametrize("code", [GENERATED, OVERWRITTEN], ids=["memory of no file", "written over a library"])
def test_code_that_is_in_no_file_is_seen_at_its_very_address(code: str) -> None:
    expected, places = seen(code)
    assert [address for address, _ in places] == [expected]
    assert [place.origin for _, place in places if place] == [Origin.GENERATED]


def test_python_at_work_is_the_runtime() -> None:
    _, places = seen(PYTHON)
    assert [place.origin for _, place in places if place] == [Origin.RUNTIME]


def test_a_thread_that_waits_is_at_nothing() -> None:
    _, places = seen("import sys, time\nprint(0, flush=True)\nsys.stdin.readline()\ntime.sleep(60)")
    assert places == []


def test_a_file_of_memory_is_known_by_its_descriptor_where_it_is_mapped() -> None:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 4096)
    with mmap.mmap(descriptor, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC):
        assert opened(descriptor) in {each.file for each in Mappings("self").all}
    os.close(descriptor)


def test_a_file_is_known_by_content_of_the_disk_not_by_its_name(tmp_path: Path) -> None:
    one, other = tmp_path / "libm.so.6", tmp_path / "other"
    one.write_bytes(bytes(4096))
    other.hardlink_to(one)
    (tmp_path / "copy").write_bytes(bytes(4096))
    assert set(as_mapped([one])) == set(as_mapped([other])) != set(as_mapped([tmp_path / "copy"]))


def test_the_function_at_an_address_is_the_one_that_the_loader_finds_there() -> None:
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    functions = functions_of(library)
    if not functions:
        pytest.skip("this PyTorch was stripped of its symbols")
    name = "_ZN2at15get_num_threadsEv"
    address = ctypes.cast(getattr(ctypes.CDLL(str(library)), name), ctypes.c_void_p).value
    assert address is not None
    mapping = Mappings("self").at(address)
    assert mapping is not None
    assert functions.at(address - mapping.start + mapping.offset) == name


def tally(**looks: int) -> Tally:
    found = Tally()
    for origin, count in looks.items():
        for _ in range(count):
            found.add([Place(Origin(origin), origin)])
    return found


def test_the_chance_of_hits_is_that_of_the_binomial_distribution() -> None:
    assert at_least(0, 10, 0.05) == pytest.approx(1.0)
    assert at_least(1, 10, 0.05) == pytest.approx(1 - 0.95**10)
    assert at_least(10, 10, 0.5) == pytest.approx(2.0**-10)


def test_nobody_is_accused_by_a_stray_look_and_nobody_clear_gets_away() -> None:
    assert not tally(own=29, library=1).accuses
    assert not tally(own=30).unclear
    assert tally(own=29, library=1).unclear
    assert tally(own=27, library=3).unclear
    assert not tally(own=27, library=3).accuses
    assert tally(own=15, library=15).accuses
    assert tally(library=6).accuses
    assert not tally(pytorch=30).accuses
    assert not Tally().accuses


def test_threads_that_spin_in_own_code_hide_no_library() -> None:
    found = Tally()
    found.add([Place(Origin.OWN, "own")] * 7 + [Place(Origin.LIBRARY, "libopenblas.so")])
    assert found.foreign == found.total == 1
    assert found.shares() is not None


def test_threads_that_only_wait_are_no_evidence() -> None:
    found = Tally()
    assert not found.add([Place(Origin.WAITING, "libgomp.so.1")])
    assert (found.total, found.shares()) == (0, None)


def test_who_hides_is_told_so() -> None:
    found = Tally()
    for _ in range(6):
        found.add([], hidden=True)
    assert found.accuses
    assert "did not let itself be looked at in 6 of 6" in found.explained()


def test_shares_add_up() -> None:
    shares = tally(own=6, runtime=1, pytorch=2, computing=1).shares()
    assert shares is not None
    assert (shares.own, shares.runtime, shares.pytorch, shares.library) == (0.6, 0.1, 0.2, 0.1)

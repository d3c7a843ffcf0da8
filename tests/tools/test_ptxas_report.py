"""Registers, shared memory and spills of each kernel, from a real report of ptxas 13.0."""

import shutil

import pytest

from tools import diagnostics
from tools.diagnostics import parse_ptxas
from tools.kernel_resources import KernelResources

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN4conv8spillingIfEEvPKT_PS1_' for 'sm_90a'
ptxas info    : Function properties for _ZN4conv8spillingIfEEvPKT_PS1_
    288 bytes stack frame, 276 bytes spill stores, 856 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 288 bytes cumulative stack size
ptxas info    : Compile time = 39.097 ms
ptxas info    : Function properties for _Z6helperf
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function '_Z13shared_kernelPf' for 'sm_90a'
ptxas info    : Function properties for _Z13shared_kernelPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 1.538 ms
"""


def without_demangler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "demangle", lambda names: names)


def test_each_kernel_and_no_device_function(monkeypatch: pytest.MonkeyPatch) -> None:
    without_demangler(monkeypatch)
    assert parse_ptxas(REPORT) == (
        KernelResources(
            name="_ZN4conv8spillingIfEEvPKT_PS1_",
            registers=32,
            stack_bytes=288,
            spill_store_bytes=276,
            spill_load_bytes=856,
        ),
        KernelResources(name="_Z13shared_kernelPf", registers=10, shared_bytes=1024),
    )


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="needs c++filt of the GNU binutils")
def test_names_are_those_of_the_source() -> None:
    spilling, shared = parse_ptxas(REPORT)
    assert "conv::spilling<float>" in spilling.name
    assert shared.name == "shared_kernel"


def test_names_stay_as_they_are_without_a_demangler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert [kernel.name for kernel in parse_ptxas(REPORT)][1] == "_Z13shared_kernelPf"


def test_a_kernel_that_was_not_finished_is_left_out() -> None:
    """What ptxas prints before it stops at an error."""
    assert parse_ptxas("\n".join(REPORT.splitlines()[:4])) == ()
    assert parse_ptxas("") == ()

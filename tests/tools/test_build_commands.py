"""What the compilers are asked to do, and what is kept of it; the compilers are fakes, so nothing takes long."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fake_compilers import FakeCompilers
from processes import ROOT, within

from tasks.errors import HarnessError, UnavailableError
from tools.build import Builder, BuiltExtension
from tools.candidate import Candidate
from tools.compilation import BuildError
from tools.confinement import Confinement
from tools.inline_request import InlineRequest

CANDIDATE = Candidate("import torch\n")
_OTHER_HARNESS = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]
from fake_compilers import FakeCompilers
from tools.build import Builder

from tools.candidate import Candidate
from tools.confinement import Confinement
from tools.inline_request import InlineRequest
Confinement.command = lambda _, argv: argv
compilers = FakeCompilers(Path(sys.argv[1]))
(compilers.folder / "g++").write_text(sys.argv[2])
request = InlineRequest(name="conv", cpp_sources=("int f();",), functions={{}})
Builder(compilers.toolchain).build(request, Candidate("import torch\\n"))
"""
"""Another process that builds the same, with a compiler that does not end by itself."""
LIGHT = "__global__ void scale(float* x) { x[0] *= 2.0f; }\n"


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCompilers:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    # Confined, the fakes could not write down how they were called.
    monkeypatch.setattr(Confinement, "command", lambda _, argv: argv)
    return FakeCompilers(tmp_path)


def built(compilers: FakeCompilers, **arguments: object) -> BuiltExtension:
    request = InlineRequest.model_validate({"name": "conv", "cpp_sources": ["int f();"], "functions": {}, **arguments})
    return Builder(compilers.toolchain).build(request, CANDIDATE)


def host_compile(compilers: FakeCompilers) -> list[str]:
    (call,) = (call for call in compilers.calls("g++") if any(each.endswith("/main.cpp") for each in call))
    return call


def test_a_candidate_is_compiled_while_the_light_headers_objects_are_made(compilers: FakeCompilers) -> None:
    """Only the linker needs them. Here they wait for nvcc's call, which was made after them before."""
    (compilers.toolchain.torch_root / "include" / "torch" / "headeronly").mkdir(parents=True)
    (compilers.toolchain.torch_root / "lib").mkdir()
    (compilers.toolchain.torch_root / "lib" / "libtorch_cuda.so").touch()
    script = compilers.folder / "g++"
    waiting = """
import time
if "runtime.o" in sys.argv:
    until = time.monotonic() + 30
    while '"nvcc"' not in log_text():
        if time.monotonic() > until:
            sys.exit(1)
        time.sleep(0.05)
"""
    reading = "def log_text():\n    log = folder / 'calls.jsonl'\n    return log.read_text() if log.exists() else ''\n"
    begin = "with (folder"
    script.write_text(script.read_text().replace(begin, reading + waiting + begin, 1))
    report = built(compilers, cuda_sources=[LIGHT]).report
    assert report.path_taken == "light"


def test_flags_that_contain_spaces_are_several_flags(compilers: FakeCompilers) -> None:
    """PyTorch hands them to a shell, so models write them so."""
    built(compilers, extra_cflags=["-O3 -march=native", "-DNAME='a b'", " -g "], extra_ldflags=["-L/some -lthing"])
    compile_ = host_compile(compilers)
    assert {"-O3", "-march=native", "-DNAME=a b", "-g"} <= set(compile_)
    link = compilers.calls("g++")[-1]
    assert link[link.index("-L/some") + 1] == "-lthing"


@pytest.mark.parametrize("flag", ["-Xcompiler -march=native", "-DSEARCH=1", "--expt-relaxed-constexpr", "-O3"])
def test_flags_with_the_letters_arch_leave_the_architecture_alone(compilers: FakeCompilers, flag: str) -> None:
    """PyTorch itself drops its own architecture when a flag merely contains these letters."""
    built(compilers, cuda_sources=[LIGHT], extra_cuda_cflags=[flag])
    assert "-gencode=arch=compute_90a,code=sm_90a" in compilers.calls("nvcc")[0]


@pytest.mark.parametrize("flag", ["-arch=sm_80", "-gencode arch=compute_80,code=sm_80", "--gpu-architecture=sm_80"])
def test_a_candidate_may_name_its_architecture(compilers: FakeCompilers, flag: str) -> None:
    built(compilers, cuda_sources=[LIGHT], extra_cuda_cflags=[flag])
    assert not any("sm_90a" in argument for argument in compilers.calls("nvcc")[0])


def test_a_candidate_may_name_its_standard(compilers: FakeCompilers) -> None:
    built(compilers, cuda_sources=[LIGHT], extra_cuda_cflags=["-std=c++17"])
    assert [flag for flag in compilers.calls("nvcc")[0] if "std=" in flag] == ["-std=c++17"]


@pytest.mark.parametrize(
    ("source", "file"),
    [
        (LIGHT, "fast/cuda.cu"),
        (LIGHT + "void f(torch::Tensor x) {}\n", "plain/cuda.cu"),
        (LIGHT + "#include <ATen/cuda/CUDAContext.h>\n", "plain/cuda.cu"),
    ],
)
def test_without_light_headers_nvcc_reads_pytorchs_only_where_a_source_needs_them(
    compilers: FakeCompilers, source: str, file: str
) -> None:
    report = built(compilers, cuda_sources=[source]).report
    (call,) = compilers.calls("nvcc")
    assert file in call
    assert report.path_taken == file.split("/")[0]


def test_nothing_is_compiled_against_pytorchs_headers_but_once_for_all(compilers: FakeCompilers) -> None:
    torch_headers = compilers.toolchain.torch_root / "include" / "torch" / "headeronly"
    torch_headers.mkdir(parents=True)
    (compilers.toolchain.torch_root / "lib").mkdir()
    (compilers.toolchain.torch_root / "lib" / "libtorch_cuda.so").touch()
    source = LIGHT + "void f(torch::Tensor x) {}\n"
    assert built(compilers, cuda_sources=[source]).report.path_taken == "light"
    once = [call for call in compilers.calls("g++") if any(re.search(r"/runtime\w*\.cpp$", each) for each in call)]
    assert len(once) == 4
    assert built(compilers, cuda_sources=[source + "// another\n"]).report.path_taken == "light"
    others = [call for call in (*compilers.calls("g++"), *compilers.calls("nvcc")) if call not in once]
    assert others
    assert not [call for call in others if str(torch_headers.parents[1]) in call]
    assert [call for call in compilers.calls("g++") if call in once] == once


def test_the_second_time_nothing_is_compiled(compilers: FakeCompilers) -> None:
    first = built(compilers)
    calls = len(compilers.calls("g++"))
    second = built(compilers)
    assert (first.report.cached, second.report.cached) == (False, True)
    assert second.library == first.library
    assert second.library.read_bytes() == (compilers.folder / "empty.so").read_bytes()
    assert len(compilers.calls("g++")) == calls


def test_the_name_is_a_label_only(compilers: FakeCompilers) -> None:
    first, second = built(compilers, name="one"), built(compilers, name="two")
    assert second.library == first.library
    assert (first.report.label, second.report.label) == ("one", "two")


@pytest.mark.parametrize(
    "change",
    [
        {"cpp_sources": ["int g();"]},
        {"extra_cflags": ["-O3"]},
        {"functions": {"f": "f"}},
        {"extra_ldflags": ["-lm"]},
        {"with_cuda": True},
        {"cuda_sources": [LIGHT]},
    ],
)
def test_everything_else_makes_another_build(compilers: FakeCompilers, change: dict[str, object]) -> None:
    first, second = built(compilers), built(compilers, **change)
    assert second.library != first.library
    assert second.module_name != first.module_name


def test_another_architecture_makes_another_build_of_cuda_sources_only(compilers: FakeCompilers) -> None:
    with_cuda, without = built(compilers, cuda_sources=[LIGHT]), built(compilers)
    compilers.toolchain = replace(compilers.toolchain, architecture="8.0")
    assert built(compilers, cuda_sources=[LIGHT]).library != with_cuda.library
    assert built(compilers).library == without.library


def test_a_failed_build_leaves_nothing_and_is_tried_again(compilers: FakeCompilers, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(BuildError, match="'conv' does not compile: 1 error") as caught:
            built(compilers, extra_cflags=["-fail"])
        assert [(d.message, d.line) for d in caught.value.diagnostics] == [("as asked", 1)]
        assert list((tmp_path / "cache" / "builds").iterdir()) == []
    assert len([call for call in compilers.calls("g++") if any(each.endswith("/main.cpp") for each in call)]) == 2


@pytest.mark.parametrize("victim", ["compiler", "harness"])
def test_a_build_that_was_killed_does_not_hold_up_the_next_one(
    compilers: FakeCompilers, tmp_path: Path, victim: str
) -> None:
    """R23: a lock that nobody would ever release lay in the folder, and all later builds waited for it."""
    mark, folder = tmp_path / "compiling", tmp_path / "other"
    folder.mkdir()
    hangs = f"#!/bin/sh\n[ -e {mark} ] && exit 1\necho $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 600\n"
    argv = [sys.executable, "-c", _OTHER_HARNESS, str(folder), hangs]
    other = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        assert within(60, mark.exists)
        os.kill(int(mark.read_text()) if victim == "compiler" else other.pid, signal.SIGKILL)
        started = time.monotonic()
        assert built(compilers).report.cached is False
        assert time.monotonic() - started < 30
        assert other.wait(30) != 0
    finally:
        other.kill()
        other.wait()
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int(mark.read_text()), signal.SIGKILL)


def test_a_failure_without_a_readable_error_shows_what_was_printed(compilers: FakeCompilers, tmp_path: Path) -> None:
    (tmp_path / "g++").write_text("#!/bin/sh\necho internal trouble >&2\nexit 4\n")
    with pytest.raises(BuildError, match="without an error message that could be read:\ninternal trouble"):
        built(compilers)


@pytest.mark.parametrize("confined", [True, False])
def test_a_compiler_that_is_gone_is_our_fault(
    compilers: FakeCompilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, confined: bool
) -> None:
    (tmp_path / "g++").unlink()
    if confined:
        monkeypatch.undo()
        monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(HarnessError, match="could not be started"):
        built(compilers)


def test_cuda_sources_without_a_toolkit(compilers: FakeCompilers) -> None:
    compilers.toolchain = replace(compilers.toolchain, cuda_home=None)
    with pytest.raises(UnavailableError, match="CUDA_HOME"):
        built(compilers, cuda_sources=[LIGHT])
    assert compilers.calls("g++") == []


def test_a_compiler_outside_the_system_folders_can_be_used(
    compilers: FakeCompilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandbox once let compilers be read from the system's folders only."""
    monkeypatch.undo()
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    empty = compilers.folder / "empty.so"
    (tmp_path / "g++").write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp {empty} "$2"\n')
    assert built(compilers).library.read_bytes() == empty.read_bytes()

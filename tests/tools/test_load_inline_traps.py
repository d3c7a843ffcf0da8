"""The traps of PyTorch's own `load_inline`, each with the test that it cannot happen here.

What is described was read in torch/utils/cpp_extension.py of PyTorch 2.11 to 2.14. The stand-in that a worker has is
used together with the builder; its compilers are fakes where it only matters what they are asked.
"""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_compilers import FakeCompilers
from processes import ROOT
from worker_bench import Bench, started_bench

from tools.build import Builder
from tools.cache_tending import drop
from tools.candidate import Candidate
from tools.compilation import BuildError
from tools.confinement import Confinement
from tools.replies import BuildLine, parse_reply
from tools.worker.load_inline import ExtensionBuildError, InlineLoader
from tools.worker.messages import Wire

ANSWERING = textwrap.dedent("""\
    #include <Python.h>
    static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(ANSWER); }
    static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "m", nullptr, -1, methods};
    #define INIT_OF(name) PyInit_##name
    #define INIT(name) INIT_OF(name)
    PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
    """)
"""An extension that compiles in a fraction of a second, because it needs no header of PyTorch."""

PRELUDE = f"""
from torch import nn
from torch.utils import cpp_extension

def loaded(number, name="conv"):
    source = {ANSWERING!r}.replace("ANSWER)", f"{{number}})")
    return cpp_extension.load_inline(name, source, no_implicit_headers=True)

class ModelNew(nn.Module):
    pass
"""


class JudgesEnd(Wire):
    """The other end of a worker's wire: builds what is asked for, as the judge does."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._answer: dict[str, Any] = {}
        self.libraries: list[Path] = []

    def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        """Build it now."""
        assert descriptor is None
        line = parse_reply(message)
        assert isinstance(line, BuildLine)
        try:
            built = self._builder.build(line.build, Candidate("import torch\n"))
        except BuildError as error:
            self._answer = {"failed": error.message}
            return
        self.libraries.append(built.library)
        self._answer = {"module": built.module_name}

    def receive(self, descriptors: list[int] | None = None) -> dict[str, Any] | None:
        """What came of it, with the library."""
        if "module" in self._answer and descriptors is not None:
            descriptors.append(os.open(self.libraries[-1], os.O_RDONLY))
        return self._answer


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCompilers:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    # Confined, the fakes could not write down how they were called.
    monkeypatch.setattr(Confinement, "command", lambda _, argv: argv)
    return FakeCompilers(tmp_path)


@pytest.fixture
def wire(compilers: FakeCompilers) -> JudgesEnd:
    return JudgesEnd(Builder(compilers.toolchain))


@pytest.fixture
def loader(wire: JudgesEnd) -> InlineLoader:
    return InlineLoader(wire)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = started_bench()
        yield made
        made.server.close()


def asked(loader: InlineLoader, source: str = "int f();", name: str = "conv", **arguments: Any) -> Path:
    """The library that an extension without a Python module is loaded from."""
    return Path(loader.load_inline(name, source, is_python_module=False, **arguments)).resolve()


def test_a_lock_that_nobody_releases_is_not_waited_for(compilers: FakeCompilers, loader: InlineLoader) -> None:
    """FileBaton (up to 2.13) waits for ever for a file `lock` that a killed build left in the folder."""
    folder = compilers.folder / "named"
    folder.mkdir()
    (folder / "lock").touch()
    library = asked(loader, build_directory=str(folder))
    assert library.is_file()
    assert [path.name for path in folder.iterdir()] == ["lock"], "the folder that a candidate names is not used"


@pytest.mark.parametrize("use_pch", [False, True])
def test_pytorchs_shared_header_is_left_alone(compilers: FakeCompilers, loader: InlineLoader, use_pch: bool) -> None:
    """With use_pch=False, which is the default, every call deletes the precompiled header of all processes; with True
    it writes to the folder where PyTorch is installed."""
    shared = compilers.folder / "torch" / "include" / "torch" / "extension.h.gch"
    shared.parent.mkdir(parents=True)
    shared.write_text("everybody's")
    asked(loader, use_pch=use_pch)
    assert shared.read_text() == "everybody's"
    assert [path for path in (compilers.folder / "torch").rglob("*") if path.is_file()] == [shared]


@pytest.mark.parametrize("flag", ["-I/opt/search/inc", "-DARCHIVE=1 -Xcompiler -march=native", "-lineinfo"])
def test_letters_of_a_flag_do_not_drop_the_architecture(
    compilers: FakeCompilers, loader: InlineLoader, flag: str
) -> None:
    """Any flag that contains `arch` makes PyTorch leave out -gencode, so nvcc builds for its oldest GPU."""
    asked(loader, cuda_sources="__global__ void k() {}", extra_cuda_cflags=[flag])
    call = compilers.calls("nvcc")[0]
    assert "-gencode=arch=compute_90a,code=sm_90a" in call
    assert set(flag.split()) <= set(call)


def test_lists_are_not_changed_and_can_be_given_twice(compilers: FakeCompilers, loader: InlineLoader) -> None:
    """PyTorch inserts its includes into the caller's list, and the second call has them and the binding twice."""
    arguments: dict[str, Any] = {
        "cpp_sources": ["int f();", "int g();"],
        "cuda_sources": ["__global__ void k() {}"],
        "functions": ["f"],
        "extra_cflags": ["-O3 -g"],
        "extra_cuda_cflags": ["-O3"],
        "extra_ldflags": ["-lm"],
        "extra_include_paths": ["/somewhere"],
    }
    before = {name: list(value) for name, value in arguments.items()}
    libraries = [Path(loader.load_inline("conv", is_python_module=False, **arguments)) for _ in range(2)]
    assert arguments == before
    assert libraries[0] == libraries[1]
    assert len(compilers.calls("nvcc")) == 1, "the second call asked for the same as the first"


def test_a_build_that_failed_is_built_when_it_is_asked_for_again(
    compilers: FakeCompilers, loader: InlineLoader
) -> None:
    """PyTorch takes the sources for built from then on, and the second call fails at the import."""
    compiler = compilers.folder / "g++"
    works = compiler.read_text()
    compiler.write_text("#!/bin/sh\necho 'candidate.py(1): error: no space left'\nexit 1\n")
    with pytest.raises(ExtensionBuildError, match="'conv' does not compile: 1 error"):
        asked(loader)
    compiler.write_text(works)
    assert asked(loader).is_file()


def test_different_sources_of_one_name_in_two_processes_have_their_own_files(tmp_path: Path) -> None:
    """PyTorch's processes share a folder for each name: they overwrite each other's main.cpp, and what is then linked
    is either's. Its count of versions hashes with Python's salt, so no process knows what another one built."""
    code = textwrap.dedent("""\
        import sys
        from pathlib import Path
        sys.path[:0] = sys.argv[3:]
        from fake_compilers import FakeCompilers
        from test_load_inline_traps import JudgesEnd, asked
        from tools.build import Builder
        from tools.confinement import Confinement
        from tools.worker.load_inline import InlineLoader
        Confinement.command = lambda _, argv: argv
        print(asked(InlineLoader(JudgesEnd(Builder(FakeCompilers(Path(sys.argv[1])).toolchain))), sys.argv[2]))
        """)
    shared = tmp_path / "compilers"
    shared.mkdir()
    libraries = []
    for number, source in enumerate(("int f();", "int g();", "int f();")):
        salted = {**os.environ, "PYTHONHASHSEED": str(number), "KERNELWRIGHT_CACHE": str(tmp_path / "cache")}
        folders = [str(ROOT), str(Path(__file__).parent)]
        argv = [sys.executable, "-c", code, str(shared), source, *folders]
        done = subprocess.run(argv, env=salted, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        libraries.append(done.stdout.strip())
    assert libraries[0] == libraries[2], "another process with another salt finds the build"
    assert libraries[1] != libraries[0]
    linked = [call for call in FakeCompilers(shared).calls("g++") if call[-2:] == ["-o", "extension.so"]]
    assert len(linked) == 2


def test_two_processes_build_different_sources_of_one_name_at_once(bench: Bench) -> None:
    texts = [PRELUDE + f"assert loaded({number}).answer() == {number}\n" for number in (31, 32)]
    with bench.worker() as one, bench.worker() as two:
        for worker, text in zip((one, two), texts, strict=True):
            bench.load(worker, text)
        assert len({worker.extensions[0].key for worker in (one, two)}) == 2


def test_versions_are_not_counted(bench: Bench) -> None:
    """PyTorch calls the second source of a name `conv_v1`, the third `conv_v2`, whatever they are; going back to an
    earlier source is a third version."""
    text = PRELUDE + textwrap.dedent("""
        first, second, again = loaded(41), loaded(42), loaded(41)
        assert (first.answer(), second.answer(), again.answer()) == (41, 42, 41)
        assert again is first
        raise RuntimeError(first.__spec__.name, second.__spec__.name)
        """)
    turned = text.replace("loaded(41), loaded(42), loaded(41)", "loaded(42), loaded(41), loaded(42)").replace(
        "(41, 42, 41)", "(42, 41, 42)"
    )
    names = [bench.fault(asked_for).message.split("'")[1::2] for asked_for in (text, turned)]
    assert names[0] == names[1][::-1], "the name of a module is that of its content"
    assert len(set(names[0])) == 2


def test_the_name_is_no_file(bench: Bench) -> None:
    text = (
        PRELUDE
        + "assert loaded(51, name='../../../x y').answer() == 51\nassert loaded(52, name='torch').answer() == 52\n"
    )
    with bench.worker() as worker:
        bench.load(worker, text)
        assert [extension.label for extension in worker.extensions] == ["../../../x y", "torch"]


def test_a_library_stays_while_a_worker_may_load_it(bench: Bench) -> None:
    """The builder's answer and the worker's loading are two moments, between which the cache may be emptied."""
    with bench.worker() as worker:
        bench.load(worker, PRELUDE + "assert loaded(61).answer() == 61\n")
        folder = bench.builder._root / worker.extensions[0].key
        assert not drop(folder)
    assert drop(folder)


def test_pytorchs_compile_caches_stay_while_a_fork_server_runs(bench: Bench) -> None:
    assert not drop(bench.server._process.cache / "inductor")
    assert not drop(bench.server._process.cache / "triton")

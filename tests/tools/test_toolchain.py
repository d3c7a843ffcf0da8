"""Which CUDA toolkit and host compiler are found."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import ROOT

from tasks.errors import UnavailableError
from tools import toolchain
from tools.toolchain import Toolchain, find_cuda_home, find_host_compiler, nvcc_version


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("CUDA_HOME", "CUDA_PATH", "CXX"):
        monkeypatch.delenv(name, raising=False)
    for cached in (find_cuda_home, nvcc_version):
        cached.cache_clear()
    yield
    for cached in (find_cuda_home, nvcc_version):
        cached.cache_clear()


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def toolkit(root: Path, version: str = "13.0.88", include: str = "include") -> Path:
    """A folder like NVIDIA's: its nvcc answers a dry run and tells its version as the real one does."""
    script(
        root / "bin" / "nvcc",
        f'if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V{version}"\n'
        f"else echo '#$ _NVVM_BRANCH_=nvvm' >&2; echo '#$ _HERE_={root}/bin' >&2; fi",
    )
    (root / include).mkdir(parents=True)
    (root / include / "cuda_runtime.h").touch()
    return root


def on_the_path(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    monkeypatch.setenv("PATH", ":".join(map(str, (*folders, "/usr/bin", "/bin"))))


def test_a_wrapper_outside_the_toolkit_leads_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = toolkit(tmp_path / "cuda-13.0")
    script(tmp_path / "bin" / "nvcc", f'exec {real}/bin/nvcc "$@"')
    on_the_path(monkeypatch, tmp_path / "bin")
    assert find_cuda_home() == real
    assert nvcc_version() == "13.0.88"


def test_a_link_leads_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = toolkit(tmp_path / "cuda-13.0")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").symlink_to(real / "bin" / "nvcc")
    on_the_path(monkeypatch, tmp_path / "bin")
    assert find_cuda_home() == real


def test_a_compiler_that_does_not_say_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = toolkit(tmp_path / "cuda")
    script(real / "bin" / "nvcc", "exit 1")
    on_the_path(monkeypatch, real / "bin")
    assert find_cuda_home() == real


def test_headers_may_lie_in_the_targets_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = toolkit(tmp_path / "cuda", include="targets/x86_64-linux/include")
    monkeypatch.setenv("CUDA_HOME", str(real))
    assert find_cuda_home() == real


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_the_environment_comes_before_the_path(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_path(monkeypatch, toolkit(tmp_path / "other") / "bin")
    monkeypatch.setenv(variable, str(toolkit(tmp_path / "named", version="12.8.93")))
    assert find_cuda_home() == tmp_path / "named"
    assert nvcc_version() == "12.8.93"


def test_a_folder_without_headers_is_no_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pip wheels of the compiler alone, or a leftover of an old installation."""
    script(tmp_path / "half" / "bin" / "nvcc", "exit 1")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "half"))
    on_the_path(monkeypatch, toolkit(tmp_path / "whole") / "bin")
    assert find_cuda_home() == tmp_path / "whole"


def test_without_a_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_is_toolkit", lambda _: False)
    assert find_cuda_home() is None
    assert nvcc_version() == ""


def chain(**changes: object) -> Toolchain:
    facts: dict[str, object] = {
        "host_compiler": "/usr/bin/g++",
        "host_version": "g++ 12",
        "torch_version": "2.14.0+cu130",
        "torch_root": Path("/torch"),
        "cuda_home": None,
        "cuda_version": "",
        "architecture": "9.0a",
    }
    return Toolchain(**{**facts, **changes})  # type: ignore[arg-type]


def test_cuda_sources_without_a_toolkit_are_unavailable_and_the_message_says_what_to_do() -> None:
    with pytest.raises(UnavailableError, match="set CUDA_HOME"):
        _ = chain().nvcc
    assert chain().cuda_includes == ()
    assert chain(cuda_home=Path("/cuda")).nvcc == "/cuda/bin/nvcc"


@pytest.mark.parametrize(
    ("version", "standard"),
    [("2.11.0+cu130", "-std=c++17"), ("2.12.1", "-std=c++17"), ("2.13.0a0", "-std=c++20"), ("3.0", "-std=c++20")],
)
def test_the_standard_of_each_pytorch(version: str, standard: str) -> None:
    assert chain(torch_version=version).host_standard == standard


def test_the_host_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_host_compiler() is None
    clang = script(tmp_path / "clang++", "")
    assert find_host_compiler() == str(clang)
    gcc = script(tmp_path / "g++", "")
    assert find_host_compiler() == str(gcc)
    monkeypatch.setenv("CXX", str(script(tmp_path / "own" / "g++-13", "")))
    assert find_host_compiler() == str(tmp_path / "own" / "g++-13")


@pytest.mark.nvcc
def test_the_toolkit_of_this_machine() -> None:
    home = find_cuda_home()
    assert home is not None
    assert (home / "bin" / "nvcc").is_file()
    assert nvcc_version().count(".") == 2


@pytest.mark.parametrize("folder", ["bin", "compute-sanitizer"])
def test_the_sanitizer_of_a_toolkit_off_the_path_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    program = tmp_path / folder / "compute-sanitizer"
    program.parent.mkdir()
    program.touch(mode=0o600)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(toolchain, "find_cuda_home", lambda: None)
    monkeypatch.setattr(toolchain, "_wheels", lambda: tmp_path / "no wheels")
    assert toolchain.find_sanitizer() is None, "a file that cannot be executed"
    program.chmod(0o700)
    assert toolchain.find_sanitizer() == program


def test_pytorch_is_found_as_it_is_without_being_imported() -> None:
    """A build can begin while it is still being imported; both must speak of the same PyTorch."""
    program = (
        "import sys; from tools.toolchain import find_toolchain; found = find_toolchain(); "
        "early = 'torch' in sys.modules; import torch; from pathlib import Path; "
        "print(early, found.torch_version == torch.__version__, found.torch_root == Path(torch.__file__).parent)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]

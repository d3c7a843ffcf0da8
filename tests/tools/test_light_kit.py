"""What belongs to the light headers is made once, and where it cannot be made, that is found out once and told."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_compilers import FakeCompilers

from tools.confinement import Confinement
from tools.light_kit import light_kit, light_kit_state
from tools.toolchain import Toolchain


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCompilers:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Confinement, "command", lambda _, argv: argv)
    made = FakeCompilers(tmp_path)
    (made.toolchain.torch_root / "include" / "torch" / "headeronly").mkdir(parents=True)
    (made.toolchain.torch_root / "lib").mkdir()
    return made


def with_cuda(toolchain: Toolchain) -> Toolchain:
    (toolchain.torch_root / "lib" / "libtorch_cuda.so").touch()
    return toolchain


def test_it_is_made_once(compilers: FakeCompilers) -> None:
    assert light_kit_state(compilers.toolchain) == (True, "prepared by the first build")
    first = light_kit(compilers.toolchain)
    assert first is not None
    calls = len(compilers.calls("g++"))
    second = light_kit(compilers.toolchain)
    assert second is not None
    assert second.folder == first.folder
    assert len(compilers.calls("g++")) == calls
    assert light_kit_state(compilers.toolchain) == (True, f"prepared in {first.folder}")


def test_only_a_pytorch_with_cuda_makes_the_part_for_it(compilers: FakeCompilers) -> None:
    without = light_kit(compilers.toolchain)
    assert without is not None
    assert not without.has_cuda
    other = light_kit(replace(with_cuda(compilers.toolchain), torch_version="2.15.0"))
    assert other is not None
    assert other.has_cuda
    assert [path.name for path in other.objects(cuda=True)] == ["runtime.o", "runtime_cuda.o"]


def test_what_does_not_compile_is_not_tried_again_and_told(compilers: FakeCompilers) -> None:
    """Each build would have taken the half minute that trying takes."""
    script = compilers.folder / "g++"
    script.write_text(script.read_text().replace('"-fail" in sys.argv', '"runtime.o" in sys.argv'))
    assert light_kit(compilers.toolchain) is None
    calls = len(compilers.calls("g++"))
    assert light_kit(compilers.toolchain) is None
    assert len(compilers.calls("g++")) == calls
    works, why = light_kit_state(compilers.toolchain)
    assert not works
    assert "do not compile with" in why
    assert "error: as asked" in Path(why.rsplit("see ", 1)[1]).read_text()


def test_an_older_pytorch_has_none(compilers: FakeCompilers) -> None:
    (compilers.toolchain.torch_root / "include" / "torch" / "headeronly").rmdir()
    assert light_kit(compilers.toolchain) is None
    assert light_kit_state(compilers.toolchain) == (False, "PyTorch 2.14.0 has no torch/headeronly headers")
    assert compilers.calls("g++") == []

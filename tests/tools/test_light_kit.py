"""What belongs to the light headers is made once, and where it cannot be made, that is found out once and told."""

import fcntl
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from fake_compilers import FakeCompilers

from tools.cache import claimed
from tools.confinement import Confinement
from tools.light_kit import light_headers, light_kit, light_kit_state
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


def test_builders_that_start_together_make_it_once(compilers: FakeCompilers) -> None:
    """Two that each made it took twice as long as one (47 and 23 s on two cores), and a cold pool has one a core."""
    with ThreadPoolExecutor(8) as pool:
        kits = [each.result() for each in [pool.submit(light_kit, compilers.toolchain) for _ in range(8)]]
    assert all(kit is not None for kit in kits)
    objects = [call for call in compilers.calls("g++") if "-c" in call]
    assert sorted(call[-1] for call in objects) == ["runtime.o", "runtime_factories.o", "runtime_python.o"]


def test_one_whose_maker_was_killed_is_made_by_the_next(compilers: FakeCompilers) -> None:
    begun = light_headers(compilers.toolchain)
    assert begun is not None
    killed = claimed(begun.folder / "making", fcntl.LOCK_EX)
    assert killed is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(light_kit, compilers.toolchain)
        time.sleep(0.3)
        assert not waiting.done()
        assert compilers.calls("g++") == []
        # As the kernel does when the process ends.
        killed.close()
        made = waiting.result(timeout=60)
    assert made is not None
    assert made.folder == begun.folder
    assert all(path.is_file() for path in made.objects(cuda=False))


def test_only_a_pytorch_with_cuda_makes_the_part_for_it(compilers: FakeCompilers) -> None:
    without = light_kit(compilers.toolchain)
    assert without is not None
    assert not without.has_cuda
    other = light_kit(replace(with_cuda(compilers.toolchain), torch_version="2.15.0"))
    assert other is not None
    assert other.has_cuda
    assert [path.name for path in other.objects(cuda=True)] == [
        "runtime.o",
        "runtime_factories.o",
        "runtime_python.o",
        "runtime_cuda.o",
    ]
    assert all(path.is_file() for path in other.objects(cuda=True))


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

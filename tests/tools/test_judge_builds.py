"""What becomes of a candidate's `load_inline`: lazily, failing, swallowed, unusual, several of one name."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from judging import task_of

from tasks.spec import Target
from tools.candidate import Candidate
from tools.judge import Judge
from tools.results import Built, Fault
from tools.server_process import Processes
from tools.verdict import Verdict

PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2
"""
CANDIDATE = """
import torch
from torch import nn
from torch.utils import cpp_extension
from torch.utils.cpp_extension import load_inline

DOUBLED = '''
torch::Tensor doubled(torch::Tensor x) {
    auto in = x.contiguous();
    auto out = torch::empty_like(in);
    for (int64_t i = 0; i < in.numel(); ++i) out.data_ptr<float>()[i] = FACTOR * in.data_ptr<float>()[i];
    return out;
}
'''

def built(factor, **changes):
    arguments = dict(
        name="doubled",
        cpp_sources=DOUBLED.replace("FACTOR", factor),
        functions=["doubled"],
        extra_cflags=["-O3 -march=native", "-fopenmp"],
    )
    return load_inline(**{**arguments, **changes})
"""
LAZY = """
class ModelNew(nn.Module):
    extension = None

    def forward(self, x):
        if self.extension is None:
            self.extension = built("2.0f")
        return self.extension.doubled(x)
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Iterator[Judge]:
    inputs = "\n\ndef get_inputs():\n    return [torch.randn(4, 8)]\n\n\ndef get_init_inputs():\n    return []\n"
    with Judge(task_of(tmp_path_factory.mktemp("doubled"), PROBLEM, inputs), Target.CPU, processes=processes) as judge:
        yield judge


def compiled(judge: Judge, text: str) -> Built | Fault:
    return judge.compile(Candidate(CANDIDATE + text))


def failed(judge: Judge, text: str) -> Fault:
    result = compiled(judge, text)
    assert isinstance(result, Fault)
    assert result.stage == "build"
    assert result.verdict is Verdict.BUILD_FAILED, result.message
    return result


def test_an_extension_built_on_the_first_call_is_seen_when_compiling(judge: Judge) -> None:
    result = compiled(judge, LAZY)
    assert isinstance(result, Built)
    (extension,) = result.extensions
    assert extension.label == "doubled"
    assert extension.kernels == ()
    assert judge.verify(Candidate(CANDIDATE + LAZY)).status == "verified"


def test_two_extensions_of_one_name_are_two(judge: Judge) -> None:
    text = """
twice, thrice = built("2.0f"), built("3.0f")

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        one = torch.ones(1)
        assert (twice.doubled(one).item(), thrice.doubled(one).item()) == (2.0, 3.0)

    def forward(self, x):
        return twice.doubled(x)
"""
    result = compiled(judge, text)
    assert isinstance(result, Built), result
    assert len({extension.key for extension in result.extensions}) == 2
    again = compiled(judge, text)
    assert isinstance(again, Built)
    assert [extension.cached for extension in again.extensions] == [True, True]


def test_a_failure_that_is_swallowed_is_still_a_failure(judge: Judge) -> None:
    """Its fallback works; but what the author meant to hand in does not exist."""
    text = """
try:
    extension = built("2.0f +")
except Exception:
    extension = None

class ModelNew(nn.Module):
    def forward(self, x):
        return x * 2 if extension is None else extension.doubled(x)
"""
    fault = failed(judge, text)
    (error,) = (item for item in fault.diagnostics if item.severity == "error")
    assert error.message == "invalid type argument of unary '*' (have 'float')"


def test_a_failure_on_the_first_call_is_seen_when_compiling(judge: Judge) -> None:
    # A name that nothing has is told without trying PyTorch's headers.
    assert failed(judge, LAZY.replace('"2.0f"', '"nowhere"')).diagnostics


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('built("2.0f", functions=["no name"])', "no C++ function name"),
        ('built("2.0f", extra_cflags=["-DNAME=\'x"])', "extra_cflags"),
        ('built("2.0f", sycl_sources="x")', "SYCL"),
        ('cpp_extension.load(name="x", sources=["x.cpp"])', "use load_inline"),
    ],
    ids=["a name that is none", "a quote that does not end", "SYCL", "load from files"],
)
def test_requests_that_cannot_be_built(judge: Judge, call: str, message: str) -> None:
    assert message in failed(judge, f"extension = {call}\n").message


def test_a_function_that_is_defined_nowhere_is_named(judge: Judge) -> None:
    """A shared library links without it; only loading fails."""
    text = 'built("2.0f", cpp_sources="int64_t nowhere(int64_t n);", functions=["nowhere"])\n'
    message = failed(judge, text).message
    assert "cannot be loaded" in message
    assert "nowhere" in message
    assert "define it in cpp_sources" in message


def test_nothing_of_a_build_is_left_in_the_way(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that cannot be written is our fault, not the candidate's."""
    builder = judge._session.builder
    (tmp_path / "file").touch()
    monkeypatch.setattr(builder, "_root", tmp_path / "file")
    result = compiled(judge, LAZY.replace("2.0f", "2.5f"))
    assert isinstance(result, Fault)
    assert result.verdict is Verdict.HARNESS_ERROR
    assert "set KERNELWRIGHT_CACHE" in result.message


def test_builds_that_fail_leave_nothing_to_whoever_collects_cycles(judge: Judge) -> None:
    """Their descriptors and their workers' memory stayed until then."""
    failed(judge, "built('missing')\n")
    gc.collect()
    gc.disable()
    try:
        before = sum(1 for _ in Path("/proc/self/fd").iterdir())
        for number in range(2):
            failed(judge, f"built('missing')\n# {number}\n")
        assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before
    finally:
        gc.enable()

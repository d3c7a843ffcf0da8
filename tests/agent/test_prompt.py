"""Tests of the words a model is given."""

import ast
import importlib.util
import re

import pytest
import torch
from jinja2 import UndefinedError
from scripted import briefing

from agent import prompt
from agent.prompt import phrase, system_prompt
from runs.config import Limits
from tasks.spec import Precision, Target
from tools.build import Builder, BuiltExtension
from tools.candidate import Candidate
from tools.inline_request import InlineRequest
from tools.toolchain import find_toolchain

LIMITS = Limits(turns=12)


def test_prompt_states_the_task_the_machine_and_the_time_to_beat() -> None:
    text = system_prompt(briefing(), LIMITS)
    for fact in (
        "Causal convolution",
        "marker = '{{ not_a_template }}'",
        "Outputs depend on the past only.",
        "N = 2, L = 512",
        "`x`: 2 x 256 x 512",
        "`conv.weight`: 256 x 256 x 4",
        "`steps`: scalar",
        "Test processor, 2 cores, avx2, 32.0 MiB",
        "peak memory bandwidth: 25 GB/s",
        "peak arithmetic in this precision class: not known",
        "1.07 GFLOP",
        "floor (roofline of direct computation; Winograd and the like may pass it): 126 us",
        "baseline `eager`: 9000 us",
        "baseline `cudnn-autotuned`: not available (no GPU)",
        "The time to beat is 7500 us (`torch.compile`)",
        "you have 12 turns",
    ):
        assert fact in text, fact


def test_prompt_says_the_rules_of_the_contract() -> None:
    text = system_prompt(briefing(), LIMITS)
    for rule in ("ModelNew", "get_init_inputs", "load_reference", "prepare(self)", "library_compute", "contract_error"):
        assert rule in text


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("target", list(Target))
def test_prompt_is_complete_for_every_target_and_precision(target: Target, precision: Precision) -> None:
    text = system_prompt(briefing(target, precision), LIMITS)
    assert "{%" not in text
    assert text.count("{{") == 1
    assert f"`{precision.value}`" in text


def code_of(target: Target) -> str:
    """The example's code, the last block of the prompt."""
    return str(re.findall(r"```python\n(.*?)```", system_prompt(briefing(target), LIMITS), re.DOTALL)[-1])


def load_inline_of(code: str) -> dict[str, object]:
    """The literal arguments of the one call of load_inline."""
    tree = ast.parse(code)
    strings = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    (call,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "load_inline"
    )
    return {
        keyword.arg or "": strings[keyword.value.id]
        if isinstance(keyword.value, ast.Name)
        else ast.literal_eval(keyword.value)
        for keyword in call.keywords
    }


def built(target: Target) -> BuiltExtension:
    code = code_of(target)
    arguments = load_inline_of(code)
    sources = {name: (str(arguments[name]),) for name in ("cpp_sources", "cuda_sources") if name in arguments}
    flags = {name: value for name, value in arguments.items() if name.startswith("extra_")}
    request = InlineRequest.model_validate({"name": "example", "functions": {"scaled_add": ""}, **sources, **flags})
    return Builder(find_toolchain()).build(request, Candidate(code))


def test_example_for_the_host_computes_what_it_says() -> None:
    made = built(Target.CPU)
    assert made.report.path_taken == "light"
    spec = importlib.util.spec_from_file_location(made.module_name, made.library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y, out = torch.arange(6.0), torch.ones(6), torch.zeros(6)
    module.scaled_add(x, y, torch.tensor([0.5]), out, 6)
    assert out.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]


@pytest.mark.nvcc
def test_example_for_cuda_builds_without_pytorchs_headers() -> None:
    report = built(Target.CUDA).report
    assert report.path_taken == "light"
    assert [kernel.name for kernel in report.kernels] == ["scaled_add_kernel"]


def test_every_phrase_says_something() -> None:
    for name in ("opening", "nudge", "cut_off", "over", "stuck"):
        assert len(phrase(name)) > 20


def test_missing_value_is_an_error_not_a_gap() -> None:
    with pytest.raises(UndefinedError):
        prompt._render("system", briefing=briefing(), limits=LIMITS)

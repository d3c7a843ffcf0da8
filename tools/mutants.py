"""Makes mutants of a task's reference, and other honest ways to compute it, as the texts of candidates.

The reference is run once under a recorder that sees which PyTorch functions and modules it calls. A mutant that
computes the same as the reference in float64 is the reference, and is left out.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from tasks.errors import HarnessError
from tasks.loader import Task
from tasks.spec import Precision, Target
from tools import alterations, rounding
from tools.accuracy import measure
from tools.alterations import DILATABLE, OUTPUT_CHANGES, Calls, name_of, tensors_of
from tools.baselines import kernelbench_source
from tools.draws import USUAL, Draws, input_shape, trials
from tools.oracle import Answer, Oracle

_SAME_BELOW = 1e-10
"""Float64 results that differ by less than this, relative to their RMS, differ by float64's own rounding only."""

_SIXTEEN_BITS = {Precision.FP16: "float16", Precision.BF16: "bfloat16"}
_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


class Variant(NamedTuple):
    """The reference altered, as the text of a candidate."""

    name: str
    does: str
    """What was done to the reference, in one sentence without a subject."""
    text: str


class Omitted(NamedTuple):
    """A mutant that was not made, because it would prove nothing."""

    name: str
    reason: str


@dataclass
class Seen:
    """What a reference was seen to do in one call."""

    calls: list["_Call"] = field(default_factory=list)
    modules: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """The first input and the output of each module by name; modules of one function call are left out."""
    count: int = 0


class _Call(NamedTuple):
    number: int
    name: str
    keeps: tuple[int, ...]
    """Which of its tensor arguments have the form of its output."""
    dilates: bool


def mutants(task: Task, target: Target) -> tuple[list[Variant], list[Omitted]]:
    """The mutants of a task's reference, and those that were not made with the reason."""
    plain = Oracle(task, target, "cpu")
    situations = list(_situations(task, target, plain))
    seen = record(task, target, situations[-1])
    answers = [plain.answer(inputs, state, honest=False) for inputs, state in situations]
    made: list[Variant] = []
    omitted: list[Omitted] = []
    for name, does, call in _alterations(task, plain, seen, answers[-1]):
        variant = Variant(name, does, _text(task, target, call))
        reason = _why_none(task, target, variant, situations, answers)
        # An output that is zero everywhere must never be right, not even where the reference says so.
        if reason is None or name == "zeros":
            made.append(variant)
        else:
            omitted.append(Omitted(name, reason))
    return made, omitted


def honest(task: Task, target: Target) -> list[Variant]:
    """The reference computed in ways that every task must accept."""
    precision = task.facts.precision_on(target)
    plain = Oracle(task, target, "cpu")
    inputs, state = next(_situations(task, target, plain))
    dtypes = plain.answer(inputs, state, honest=False).dtypes
    outputs = tuple(
        str(dtype).removeprefix("torch.") for name, dtype in dtypes.items() if not name.startswith("state ")
    )
    source = f"{_embedded('_rounding', rounding)}\n"
    rounds = f"_rounding.RoundedProducts(_rounding.Precision({precision.value!r}))"
    wide = f"computed_in(self, Model.forward, inputs, dtype='float64', outputs={outputs!r}"
    narrow = f"computed_in(self, Model.forward, inputs, dtype='float32', outputs={outputs!r})"
    variants = [
        Variant(f"PyTorch in {precision}", "computes as PyTorch does in the class", _text(task, target, None)),
        Variant("float64", "computes in float64 and casts the result", _text(task, target, f"{wide})")),
        Variant(
            "rounded operands",
            f"computes in float64 with the operands of products rounded to {precision}",
            _text(task, target, f"{wide}, within={rounds})", source),
        ),
    ]
    if precision is Precision.TF32:
        cut = f"{wide}, within=_rounding.RoundedProducts(_rounding.Precision({precision.value!r}), cutting=True))"
        variants.append(
            Variant("cut operands", "lets tensor cores cut the operands of products", _text(task, target, cut, source))
        )
    if precision is not Precision.FP32:
        variants.append(Variant("PyTorch in fp32", "computes in float32 without TF32", _text(task, target, narrow)))
    return variants


Situation = tuple[list[torch.Tensor], dict[str, torch.Tensor]]


def _situations(task: Task, target: Target, oracle: Oracle) -> Iterator[Situation]:
    """Inputs and parameters on the smallest shape and on two others, the last the longest."""
    draws = Draws("cpu")
    for trial in trials(task.facts, target, draws)[:3]:
        inputs = [draws.input(spec, input_shape(spec, trial.sizes), USUAL) for spec in task.facts.inputs]
        yield inputs, draws.state(oracle.template)


def record(task: Task, target: Target, situation: Situation) -> Seen:
    """What the reference does in one call on the host."""
    base = task.load().model_class
    latest: list[Seen] = []

    def forward(self: nn.Module, *inputs: torch.Tensor) -> Any:
        seen = Seen()
        latest.append(seen)
        hooks = [hook for name, module in self.named_modules() if name for hook in _watch(name, module, seen)]
        try:
            with Calls(lambda *call: _noted(seen, *call)):
                return base.forward(self, *inputs)
        finally:
            for hook in hooks:
                hook.remove()

    recording = type("Recording", (base,), {"forward": forward})
    Oracle(task, target, "cpu", model_class=recording).answer(*situation, honest=False)
    return latest[-1]


def _watch(name: str, module: nn.Module, seen: Seen) -> tuple[Any, Any]:
    started: list[int] = []

    def after(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if seen.count - started.pop() > 1:
            # Only kept: while calls are numbered, asking for a shape would be one.
            seen.modules[name] = (inputs[0] if inputs else None, output)

    return (
        module.register_forward_pre_hook(lambda *_: started.append(seen.count)),
        module.register_forward_hook(after),
    )


def _noted(seen: Seen, number: int, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = tensors_of(args, kwargs)
    forms = [(value.shape, value.dtype) for value in given]
    kernel = given[1].shape[2:] if len(given) > 1 else ()
    output = func(*args, **kwargs)
    seen.count += 1
    if isinstance(output, torch.Tensor):
        keeps = tuple(index for index, form in enumerate(forms) if form == (output.shape, output.dtype))
        name = name_of(func)
        seen.calls.append(_Call(number, name, keeps, name in DILATABLE and max(kernel, default=1) > 1))
    return output


def _same_form(value: Any, other: Any) -> bool:
    tensors = isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor)
    return tensors and (value.shape, value.dtype) == (other.shape, other.dtype)


Alteration = tuple[str, str, str]
"""Name, what it does, and the call of `tools.alterations` that does it."""


def _alterations(task: Task, oracle: Oracle, seen: Seen, answer: Answer) -> Iterator[Alteration]:
    outputs = [(name, value) for name, value in answer.exact if not name.startswith("state ")]
    for index, (label, value) in enumerate(outputs):
        place = "" if len(outputs) == 1 else f" in {label}"
        for change, (does, dimensions, _) in OUTPUT_CHANGES.items():
            if value.ndim >= dimensions:
                call = _call("output_changed", output=index, change=change)
                yield f"{change}{place}", f"answers as the reference, but {does}{place}", call
        for source, spec in enumerate(task.facts.inputs):
            if len(spec.dims) == value.ndim:
                call = _call("input_copied", output=index, source=source)
                yield f"copy of {spec.name}{place}", f"answers the input {spec.name}{place}, cropped or repeated", call
    yield from changed_work(task, oracle, seen)
    for name in oracle.updated:
        yield f"{name} not updated", f"leaves the buffer {name} as it was", _call("buffer_kept", buffer=name)


def changed_work(task: Task, oracle: Oracle, seen: Seen) -> Iterator[Alteration]:
    """The alterations that change what the reference computes, not its answer afterwards."""
    yield from _without_operations(seen)
    yield from _with_other_values(task, oracle)


def _without_operations(seen: Seen) -> Iterator[Alteration]:
    for number, name, keeps, dilates in seen.calls:
        again = sum(other.name == name for other in seen.calls) > 1
        label = f"{name} #{number}" if again else name
        for keep in keeps:
            which = f"{label} left out" if keep == 0 else f"{label} answers operand {keep + 1}"
            does = f"answers argument {keep + 1} of {name} (call {number}) instead of its result"
            yield which, does, _call("call_left_out", call=number, name=name, keep=keep)
        if dilates:
            does = f"changes the dilation of {name} (call {number}) and its padding with it"
            yield f"other dilation in {label}", does, _call("dilation_changed", call=number, name=name)
    for module, (given, output) in seen.modules.items():
        if _same_form(given, output):
            yield f"module {module} left out", f"puts Identity for {module}", _call("module_left_out", module=module)


def _with_other_values(task: Task, oracle: Oracle) -> Iterator[Alteration]:
    template = oracle.template
    for name in template:
        if name.rpartition(".")[2] == "bias":
            yield f"no {name}", f"takes {name} as 0", _call("values_changed", values={name: 0.0})
    for module, kind in oracle.modules.items():
        if not isinstance(kind, _NORMS):
            continue
        defaults = {f"{module}.weight": 1.0, f"{module}.bias": 0.0}
        present = {name: value for name, value in defaults.items() if name in template}
        if len(present) == 2:
            weight = {f"{module}.weight": 1.0}
            yield f"no {module}.weight", f"takes {module}.weight as 1", _call("values_changed", values=weight)
        if present:
            does = f"takes {' and '.join(f'{name} as {value:g}' for name, value in present.items())}"
            yield f"default parameters of {module}", does, _call("values_changed", values=present)
        running = {f"{module}.running_mean": 0.0, f"{module}.running_var": 1.0}
        if task.mode == "eval" and running.keys() <= template.keys():
            does = f"takes the running mean of {module} as 0 and its running variance as 1"
            yield f"default statistics of {module}", does, _call("values_changed", values=running)


def _call(alteration: str, **settings: object) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return f"{alteration}(self, Model.forward, inputs, {given})"


def _text(task: Task, target: Target, call: str | None, extra: str = "") -> str:
    """A candidate: the task's file, what alters it, and a `ModelNew` that is altered; the reference itself for None."""
    body = ""
    if call is not None:
        body += f"\n    def forward(self, *inputs):\n        return _alterations.{call}\n"
    dtype = _SIXTEEN_BITS.get(task.facts.precision_on(target))
    if dtype is not None:
        body += f"\n    def prepare(self):\n        self.to(_alterations.torch.{dtype})\n"
    parts = (kernelbench_source(task), _embedded("_alterations", alterations), extra)
    return "\n".join((*parts, f"\nclass ModelNew(Model):\n{body or '    pass'}"))


def _embedded(name: str, module: ModuleType) -> str:
    """A module of ours as part of a text, in a namespace of its own, so that no name of the task's is shadowed."""
    lines = inspect.getsource(module).splitlines()
    imported = "from tasks.spec import Precision"
    if imported in lines:
        lines[lines.index(imported)] = f"from enum import StrEnum\n\n\n{inspect.getsource(Precision)}"
    source = "\n".join(lines)
    return f"import types\n\n{name} = types.ModuleType({name!r})\nexec({source!r}, {name}.__dict__)\n"


def _why_none(
    task: Task, target: Target, variant: Variant, situations: list[Situation], answers: list[Answer]
) -> str | None:
    """Why a mutant proves nothing; None if it answers in the reference's form, and something else."""
    # Our own text around the task's: nothing here comes from a candidate.
    namespace: dict[str, Any] = {"__name__": "mutant"}
    exec(compile(variant.text, f"<{variant.name}>", "exec"), namespace)
    oracle = Oracle(task, target, "cpu", model_class=namespace["ModelNew"])
    differs = False
    for (inputs, state), answer in zip(situations, answers, strict=True):
        try:
            mutated = oracle.answer(inputs, state, honest=False)
        except HarnessError as error:
            return f"it does not run on every shape: {error.__cause__}"
        if [_form(value) for _, value in mutated.exact] != [_form(value) for _, value in answer.exact]:
            return "its outputs have another form"
        differs |= not all(
            _equal(ours, theirs) for (_, ours), (_, theirs) in zip(mutated.exact, answer.exact, strict=True)
        )
    return None if differs else "it computes the same as the reference"


def _form(value: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return value.shape, value.dtype


def _equal(value: torch.Tensor, exact: torch.Tensor) -> bool:
    if not exact.is_floating_point():
        return torch.equal(value, exact)
    errors = measure(value, exact)
    return errors.pattern_broken == 0 and max(errors.rms, errors.channel) < _SAME_BELOW

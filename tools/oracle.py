"""The oracle: the task's reference in float64, and what honest implementations of its precision class make of it."""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tasks.errors import HarnessError, TaskError
from tasks.loader import Task
from tasks.spec import Precision, Target
from tools.accuracy import Errors, measure
from tools.filled_reference import FilledReference, Named
from tools.rounding import RoundedProducts
from tools.worker.plain_values import encode

_WORKING = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}


@dataclass(frozen=True)
class Answer:
    """What is right for one call, and what honest implementations answer."""

    exact: Named
    """The outputs in float64 (integers as they are), then the buffers that the call updates."""
    honest: list[dict[str, Errors]]
    """How far off are PyTorch itself in the class, and the reference with rounded operands; integers are left out."""
    dtypes: dict[str, torch.dtype]
    """The dtype that each output must have."""
    cut: dict[str, Errors] = field(default_factory=dict)
    """How far off is the reference with operands cut to TF32, in that class: tensor cores ignore the bits beyond it, so
    a kernel that does not round (Triton's, by default) has them cut. No other class has a cut of its hardware's own."""

    @property
    def expected_bytes(self) -> int:
        """Bytes of the outputs in their own dtypes, and a page."""
        return sum(tensor.numel() * self.dtypes[name].itemsize for name, tensor in self.exact) + 4096


class Oracle:
    """Runs one task's reference on one device; trusted code only ever sees it."""

    def __init__(
        self, task: Task, target: Target, device: str, *, model_class: type[torch.nn.Module] | None = None
    ) -> None:
        """`model_class` runs in place of the task's `Model`, with the same arguments and parameters."""
        self.task = task
        self.precision = task.facts.precision_on(target)
        self.device = device
        reference = task.load()
        self._model_class = model_class or reference.model_class
        self._init_inputs = reference.init_inputs
        try:
            self.init_inputs = encode(list(reference.init_inputs))
        except TypeError as error:
            raise TaskError(
                f"{task.path}: get_init_inputs() holds a value that cannot be given to a candidate: {error}; "
                "use numbers, texts, None, and lists, tuples or dicts of these."
            ) from error
        try:
            self._template = self._construct()
        except Exception as error:
            raise TaskError(
                f"{task.path}: Model(*get_init_inputs()) failed: {type(error).__name__}: {error}"
            ) from error

    def _construct(self) -> torch.nn.Module:
        model = self._model_class(*self._init_inputs)
        return model.train(self.task.mode == "train").to(self.device)

    @property
    def template(self) -> dict[str, torch.Tensor]:
        """The reference's parameters and buffers as constructed, by name."""
        return dict(self._template.state_dict())

    @property
    def modules(self) -> dict[str, torch.nn.Module]:
        """The reference's modules as constructed, by name, without the reference itself."""
        return {name: module for name, module in self._template.named_modules() if name}

    @property
    def updated(self) -> tuple[str, ...]:
        """The buffers that a call updates in this task's mode."""
        return self.task.facts.state if self.task.mode == "train" else ()

    def with_state(self, state: dict[str, torch.Tensor]) -> "Filled":
        """The oracle for one set of parameters and buffers, by name and in the working dtype."""
        return Filled(self, state)

    def answer(
        self,
        inputs: list[torch.Tensor],
        state: dict[str, torch.Tensor],
        *,
        honest: bool = True,
        part: Callable[[Named], Named] = list,
    ) -> Answer:
        """`Filled.answer` for one question."""
        return self.with_state(state).answer(inputs, honest=honest, part=part)

    def working(self, inputs: list[torch.Tensor], state: dict[str, torch.Tensor]) -> Named:
        """`Filled.working` for one question."""
        return self.with_state(state).working(inputs)

    def exact(self, inputs: list[torch.Tensor], state: dict[str, torch.Tensor]) -> Named:
        """`Filled.exact` for one question."""
        return self.with_state(state).exact(inputs)

    def filled_copy(self, state: dict[str, torch.Tensor], dtype: torch.dtype | None) -> torch.nn.Module:
        """A copy of the reference with a state, in a dtype; in the class's own where none is given."""
        model = self._copy()
        model.load_state_dict(state)
        dtype = dtype or _WORKING.get(self.precision)
        return model if dtype is None else model.to(dtype)

    def _copy(self) -> torch.nn.Module:
        """The reference as constructed. A copy takes a seventh to a third of the time, for no parameters are drawn; a
        reference that cannot be copied is constructed anew."""
        try:
            return copy.deepcopy(self._template)
        # Copying runs a task author's code, which may raise anything.
        except Exception:
            return self._construct()


class Filled:
    """The oracle for one state: its references are filled once, however many questions there are."""

    def __init__(self, oracle: Oracle, state: dict[str, torch.Tensor]) -> None:
        self._oracle = oracle
        self._references = {
            dtype: FilledReference(functools.partial(oracle.filled_copy, state, dtype), oracle.updated)
            for dtype in (None, torch.float64)
        }

    def answer(
        self, inputs: list[torch.Tensor], *, honest: bool = True, part: Callable[[Named], Named] = list
    ) -> Answer:
        """Run the reference on inputs of the working dtype.

        Args:
            inputs: in the order of the task's facts.
            honest: whether to measure what honest implementations make of it.
            part: which part of the outputs the honest errors are of.

        Raises:
            HarnessError: the reference itself fails on a shape that the task's facts call valid.
        """
        other = self.working(inputs)
        exact = self.exact(inputs)
        dtypes = {name: tensor.dtype for name, tensor in other}
        found = []
        cut: dict[str, Errors] = {}
        if honest:
            found.append(_errors(part(other), part(exact)))
            # On a large shape there is no room for both.
            del other
            found.append(_errors(part(self._shortened(inputs)), part(exact)))
            if self._oracle.precision is Precision.TF32:
                cut = _errors(part(self._shortened(inputs, cutting=True)), part(exact))
        return Answer(exact, found, dtypes, cut)

    def working(self, inputs: list[torch.Tensor]) -> Named:
        """What PyTorch itself answers in the class; raises as `answer` does."""
        return self._run(inputs, None)

    def exact(self, inputs: list[torch.Tensor]) -> Named:
        """What the reference answers in float64, to inputs of the working dtype or of float64; raises as `answer`."""
        return self._run(inputs, torch.float64)

    def _shortened(self, inputs: list[torch.Tensor], *, cutting: bool = False) -> Named:
        with RoundedProducts(self._oracle.precision, cutting=cutting):
            return self.exact(inputs)

    def _run(self, inputs: list[torch.Tensor], dtype: torch.dtype | None) -> Named:
        task, tf32 = self._oracle.task, self._oracle.precision is Precision.TF32
        # A reference may write into its inputs.
        arguments = [
            value.to(dtype, copy=True) if dtype is not None and value.is_floating_point() else value.clone()
            for value in inputs
        ]
        reference = self._references[dtype]
        reference.fill()
        try:
            with torch.no_grad(), tf32_allowed(tf32), _default_dtype(dtype):
                return reference(arguments)
        # The reference is a task author's code, which may raise anything.
        except Exception as error:
            shapes = [tuple(value.shape) for value in inputs]
            raise HarnessError(
                f"the reference of task {task.name} failed on inputs of shape {shapes}: "
                f"{type(error).__name__}: {error}; "
                "correct the task's axes (minimum, multiple_of) or its Model."
            ) from error


def _errors(outputs: Named, exact: Named) -> dict[str, Errors]:
    pairs = zip(outputs, exact, strict=True)
    return {name: measure(value, truth) for (name, value), (_, truth) in pairs if truth.is_floating_point()}


@contextlib.contextmanager
def tf32_allowed(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in cuDNN and cuBLAS within the block; PyTorch's own default allows it for convolutions."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype | None) -> Iterator[None]:
    before = torch.get_default_dtype()
    if dtype is not None:
        torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def describe_state(template: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of parameters and buffers."""
    return {name: tuple(tensor.shape) for name, tensor in template.items()}

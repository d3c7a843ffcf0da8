"""Which shipped task an imported conversation is about, where its text leaves no doubt."""

import ast
import re
from dataclasses import dataclass

from runs.events import Imported, ModelReplied
from runs.importing.draft import Draft
from tasks.loader import Task, all_tasks
from tasks.target import Target

_OPERATIONS = re.compile(r"\b(?:nn|functional)\.([A-Za-z]\w*)\(")


@dataclass(frozen=True)
class Traits:
    """What tells a task from others in a text that is about it."""

    name: str
    reference: str
    """The text of its class `Model`."""
    operations: frozenset[str]
    """What the class calls of PyTorch, in small letters."""
    shape: re.Pattern[str]
    """The shape of its first input, written as a tuple."""
    shape_sizes: frozenset[int]
    sizes: dict[int, tuple[re.Pattern[str], ...]]
    """Each size in its file, with the ways in which `name = value` states it, one a name."""

    def describe(self, text: str) -> bool:
        """Whether a text names every operation and states all sizes: each by `name = value`, or within the shape."""
        lower = text.lower()
        if not all(name in lower for name in self.operations):
            return False
        stated = self.shape_sizes if self.shape.search(text) else frozenset()
        return all(size in stated or all(name.search(text) for name in names) for size, names in self.sizes.items())


class KnownTasks:
    """The tasks that ship with the project."""

    def __init__(self) -> None:
        tasks = all_tasks()
        self._names = {task.name for task in tasks}
        # A file's modes share its text: the first stands for all.
        self._traits = [_traits(task) for task in tasks if task.mode == task.facts.modes[0]]

    def guess(self, draft: Draft) -> str | None:
        """The name of the task that a conversation is about; None where no task, or more than one, fits.

        It fits where the file states a task's name as such, where the prompt holds its reference word for word, or
        where prompt and first reply describe it.
        """
        if draft.task is not None:
            return draft.task if draft.task in self._names else None
        prompt = _prompt(draft)
        text = f"{prompt}\n{_first_reply(draft)}"
        fitting = [task.name for task in self._traits if task.reference in prompt]
        fitting = fitting or [task.name for task in self._traits if task.describe(text)]
        return fitting[0] if len(fitting) == 1 else None


def _prompt(draft: Draft) -> str:
    said = [event.text for event in draft.events if isinstance(event, Imported) and event.turn == 0]
    return "\n".join((draft.system_prompt, draft.opening, *said))


def _first_reply(draft: Draft) -> str:
    """The first reply, in which a model repeats what it was asked."""
    first = next((event for event in draft.events if isinstance(event, ModelReplied)), None)
    return "" if first is None else f"{first.reasoning}\n{first.text}"


def _traits(task: Task) -> Traits:
    tree = ast.parse(task.source)
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    reference = ast.get_source_segment(task.source, model) or task.source
    shape = _benchmark_shape(task)
    named: dict[int, tuple[re.Pattern[str], ...]] = {}
    for name, size in _sizes(tree):
        named[size] = (*named.get(size, ()), re.compile(rf"\b{re.escape(name)}\s*=\s*{size}\b"))
    return Traits(
        name=task.name,
        reference=reference,
        operations=frozenset(name.lower() for name in _OPERATIONS.findall(reference)),
        shape=re.compile(r"[(\[]\s*" + r"\s*,\s*".join(map(str, shape)) + r"\s*[)\]]"),
        shape_sizes=frozenset(shape),
        sizes=named,
    )


def _sizes(tree: ast.Module) -> list[tuple[str, int]]:
    """The integers that a task's file names."""
    return [
        (node.targets[0].id, node.value.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
    ]


def _benchmark_shape(task: Task) -> list[int]:
    """The shape of the first input on the GPU, which is that of the file."""
    axes = task.facts.benchmark_sizes(Target.CUDA)
    return [dim if isinstance(dim, int) else axes[dim] for dim in task.facts.inputs[0].dims]

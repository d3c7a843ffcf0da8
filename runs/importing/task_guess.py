"""Which shipped task an imported conversation is about, where its text leaves no doubt."""

import ast
import re
from collections.abc import Sequence

from runs.events import Imported, ModelReplied
from runs.importing.draft import Draft
from tasks.loader import Task, all_tasks
from tasks.target import Target

_OPERATIONS = re.compile(r"\b(?:nn|functional)\.([A-Za-z]\w*)\(")
_HOLDERS = ("Module", "Parameter")


def guess_task(draft: Draft) -> str | None:
    """The task's name; None where no task, or more than one, fits.

    A task fits where the file states its name as the task, where the prompt holds the reference's class word for word,
    or where prompt and first reply name every operation of the reference and state all of its sizes: each as
    `name = value`, or as one of the numbers of the input's shape, written as a tuple.
    """
    tasks = all_tasks()
    if draft.task is not None:
        return draft.task if draft.task in {task.name for task in tasks} else None
    # A file's other modes have the same text.
    firsts = [task for task in tasks if task.mode == task.facts.modes[0]]
    prompt = _prompt(draft)
    quoted = [task.name for task in firsts if _reference(task) in prompt]
    if quoted:
        return quoted[0] if len(quoted) == 1 else None
    text = f"{prompt}\n{_first_reply(draft)}"
    described = [task.name for task in firsts if _is_described(task, text)]
    return described[0] if len(described) == 1 else None


def _prompt(draft: Draft) -> str:
    said = [event.text for event in draft.events if isinstance(event, Imported) and event.turn == 0]
    return "\n".join((draft.system_prompt, draft.opening, *said))


def _first_reply(draft: Draft) -> str:
    """The first reply, in which a model repeats what it was asked."""
    first = next((event for event in draft.events if isinstance(event, ModelReplied)), None)
    return "" if first is None else f"{first.reasoning}\n{first.text}"


def _reference(task: Task) -> str:
    """The text of the class `Model`."""
    body = ast.parse(task.source).body
    model = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == "Model")
    return ast.get_source_segment(task.source, model) or task.source


def _is_described(task: Task, text: str) -> bool:
    lower = text.lower()
    operations = {name.lower() for name in _OPERATIONS.findall(_reference(task))} - {name.lower() for name in _HOLDERS}
    if not all(name in lower for name in operations):
        return False
    shape = _benchmark_shape(task)
    stated = set(shape) if _as_tuple(shape).search(text) else set()
    sizes = _sizes(task)
    return bool(sizes) and all(value in stated or _as_name(name, value).search(text) for name, value in sizes.items())


def _sizes(task: Task) -> dict[str, int]:
    """The integers that the task's file names."""
    return {
        node.targets[0].id: node.value.value
        for node in ast.parse(task.source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
    }


def _benchmark_shape(task: Task) -> Sequence[int]:
    """The shape of the first input on the GPU, which is that of the file."""
    axes = task.facts.benchmark_sizes(Target.CUDA)
    return [dim if isinstance(dim, int) else axes[dim] for dim in task.facts.inputs[0].dims]


def _as_tuple(shape: Sequence[int]) -> re.Pattern[str]:
    return re.compile(r"[(\[]\s*" + r"\s*,\s*".join(map(str, shape)) + r"\s*[)\]]")


def _as_name(name: str, value: int) -> re.Pattern[str]:
    return re.compile(rf"\b{re.escape(name)}\s*=\s*{value}\b")

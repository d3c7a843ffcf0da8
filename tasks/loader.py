"""Finds tasks by name or path, and reads their facts without importing PyTorch."""

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tasks import spec
from tasks.errors import TaskError
from tasks.reference import Reference, load_reference
from tasks.spec import Mode, TaskFacts

_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Task:
    """One problem: a file's facts and text, in one of its modes."""

    facts: TaskFacts
    mode: Mode
    source: str
    path: Path

    @property
    def name(self) -> str:
        """The file's name for its first mode, else the name with the mode as a suffix."""
        return self.facts.name if self.mode == self.facts.modes[0] else f"{self.facts.name}_{self.mode}"

    def load(self) -> Reference:
        """Execute the file; raises `TaskError` where it does not run."""
        return load_reference(self.source, self.path)


def all_tasks() -> tuple[Task, ...]:
    """Every task that ships with the project, by name."""
    tasks: list[Task] = []
    for path in sorted(_FOLDER.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        facts = _stated_facts(source, path)
        if facts is not None:
            tasks.extend(Task(facts, mode, source, path) for mode in facts.modes)
    return tuple(sorted(tasks, key=lambda task: task.name))


def task_names() -> tuple[str, ...]:
    """The names of the tasks that ship with the project."""
    return tuple(task.name for task in all_tasks())


def find_task(name_or_path: str | Path) -> Task:
    """A task by its name, or by the path of a task file or of any KernelBench problem file.

    A path gives the file's first mode. A file without `TASK` is executed, which needs PyTorch, and its facts are
    derived.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".py") or "/" in text or "\\" in text:
        return _task_at(Path(name_or_path))
    tasks = {task.name: task for task in all_tasks()}
    if text in tasks:
        return tasks[text]
    close = difflib.get_close_matches(text, tasks, n=3)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise TaskError(
        f"no task is named {text!r}; {hint}known are {', '.join(tasks)}; or give the path of a KernelBench problem file"
    )


def _task_at(path: Path) -> Task:
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: the task file cannot be read: {error}; give the path of a Python file") from error
    facts = _stated_facts(source, path)
    if facts is None:
        # Deriving executes the file, which needs PyTorch; files with TASK must not pay for its import.
        from tasks.kernelbench import derive_facts

        facts = derive_facts(source, path)
    return Task(facts, facts.modes[0], source, path)


def _stated_facts(source: str, path: Path) -> TaskFacts | None:
    """The value of the file's top-level `TASK = TaskFacts(...)`; None where the file has none."""
    try:
        tree = ast.parse(source, filename=str(path))
    except SyntaxError as error:
        raise TaskError(f"{path}:{error.lineno}: the task file is not valid Python: {error.msg}; correct it") from error
    expression = next((value for value in map(_value_of_task, tree.body) if value is not None), None)
    if expression is None:
        return None
    names = {name: getattr(spec, name) for name in vars(spec) if not name.startswith("_")}
    try:
        value = eval(compile(ast.Expression(expression), str(path), "eval"), {"__builtins__": {}, **names})
    except ValidationError as error:
        raise TaskError(f"{path}:{expression.lineno}: TASK does not hold valid facts: {error}") from error
    except Exception as error:
        raise TaskError(
            f"{path}:{expression.lineno}: TASK cannot be evaluated on its own ({type(error).__name__}: {error}); "
            "use literals and the names of tasks.spec only"
        ) from error
    if not isinstance(value, TaskFacts):
        raise TaskError(f"{path}:{expression.lineno}: TASK is a {type(value).__name__}; write TASK = TaskFacts(...)")
    return value


def _value_of_task(statement: ast.stmt) -> ast.expr | None:
    match statement:
        case ast.Assign(targets=[ast.Name(id="TASK")], value=value):
            return value
        case ast.AnnAssign(target=ast.Name(id="TASK"), value=value):
            return value
    return None

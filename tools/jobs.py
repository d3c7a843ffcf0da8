"""What an evaluation pool is given and gives back, and what its processes say to each other, by content."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from tasks.loader import Task, all_tasks
from tasks.record import Record
from tasks.spec import Mode, Target
from tools.briefing import Briefing
from tools.candidate import Candidate
from tools.results import BenchmarkResult, BuildResult, Evaluation, Fault, Stage, ToolResult, VerifyResult
from tools.sanitizer_results import Sanitized
from tools.verdict import Verdict

Role = Literal["builder", "lane"]
"""A builder compiles candidates on the host's cores; a lane verifies and measures them on one device."""
Question = Literal["evaluate", "briefing", "compile", "verify", "benchmark", "profile", "sanitize", "disassemble"]
"""What a judge is asked: everything about a candidate, what a model is told before it starts, or what one tool asks."""

KEPT_TASKS = 4
"""So many tasks' judges a process of the pool keeps: on a GPU each holds the context of a warm baseline."""

_STAGES: dict[Question, Stage] = {
    "verify": "verify",
    "benchmark": "benchmark",
    "sanitize": "sanitizer",
    "profile": "profile",
    "disassemble": "disassembly",
}
"""Of questions that are no build's."""


class JobTask(Record):
    """A task by content, so that it is the same on every machine."""

    name: str
    mode: Mode
    file: str = ""
    """The file's name, from which facts that are derived have theirs."""
    source: str | None = None
    """The text of the task file; None for a task that ships with the project."""

    @classmethod
    def of(cls, task: Task) -> "JobTask":
        """How a pool is told of a task."""
        if any(each.name == task.name and each.source == task.source for each in all_tasks()):
            return cls(name=task.name, mode=task.mode)
        return cls(name=task.name, mode=task.mode, file=task.path.name, source=task.source)


class Job(Record):
    """One question about one candidate of one task; two jobs with the same id ask the same."""

    task: JobTask
    target: Target
    text: str
    """The candidate's."""
    allow_library: bool = False
    strict: bool = False
    """As of `Judge.evaluate`."""
    fixed_candidates: bool = False
    """As of `Judge`."""
    question: Question = "evaluate"
    function: str | None = None
    """Which one to disassemble; only for that question."""

    @property
    def begins_with(self) -> Role:
        """Who is given it first: a builder, where something may have to be built or no device is needed."""
        return "builder" if self.question in ("evaluate", "compile", "disassemble") else "lane"

    @property
    def id(self) -> str:
        """The SHA-256 of all that is asked, in hexadecimal."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def candidate(self) -> Candidate:
        """The candidate."""
        return Candidate(self.text)

    def failed(self, message: str) -> Evaluation | Fault:
        """The answer where the pool could not carry it out."""
        candidate = self.candidate.id
        stage = _STAGES.get(self.question, "build")
        fault = Fault(stage=stage, verdict=Verdict.HARNESS_ERROR, message=message, candidate=candidate)
        if self.question != "evaluate":
            return fault
        return Evaluation(candidate=candidate, task=self.task.name, target=self.target, build=fault)


class Span(Record):
    """When one stage of one evaluation ran, and where; waiting for a lease is part of it."""

    stage: Stage
    where: str
    """A builder or a lane, such as `builder:3` or `cuda:0`; on a cluster with its node before it."""
    candidate: str
    started_s: float
    """Seconds since 1970 by that machine's clock."""
    ended_s: float


class Evaluated(Record):
    """What the pool found out about one job."""

    job: str
    """The job's id."""
    evaluation: Evaluation
    spans: tuple[Span, ...] = ()
    attempts: int = 1
    """More than one where a process of the pool ended during the job."""


class Answered(Record):
    """The pool's answer to one job, whatever it asks."""

    job: str
    """The job's id."""
    result: ToolResult | Briefing
    device_seconds: float = 0.0
    """How long the device was held for it."""
    spans: tuple[Span, ...] = ()
    attempts: int = 1


class Ask(Record):
    """What the pool sends to one of its processes: a job to build or to evaluate, or only to get ready for."""

    job: Job
    build: BuildResult | None = None
    """What the builder answered; a lane is given it."""
    only_get_ready: bool = False


class BuildAnswer(Record):
    """A builder's answer."""

    kind: Literal["build"] = "build"
    result: BuildResult


class EvaluationAnswer(Record):
    """A lane's answer."""

    kind: Literal["evaluation"] = "evaluation"
    result: Evaluation
    device_seconds: float = 0.0


class ToolAnswer(Record):
    """The answer to what one tool asks."""

    kind: Literal["tool"] = "tool"
    result: ToolResult
    device_seconds: float = 0.0


class BriefingAnswer(Record):
    """A lane's answer where a model is to be briefed."""

    kind: Literal["briefing"] = "briefing"
    result: Briefing


class Ready(Record):
    """The answer where it was only to get ready."""

    kind: Literal["ready"] = "ready"


class Progress(Record):
    """No answer yet: what is being done or waited for."""

    kind: Literal["progress"] = "progress"
    message: str


class Ended(Record):
    """No answer: the process has ended. Told by who watched it, where that is on another machine."""

    kind: Literal["ended"] = "ended"
    message: str


Answer = BuildAnswer | EvaluationAnswer | ToolAnswer | BriefingAnswer | Ready
Reply = Annotated[Answer | Progress | Ended, Field(discriminator="kind")]
REPLY: TypeAdapter[Answer | Progress | Ended] = TypeAdapter(Reply)


def lane_spans(evaluation: Evaluation, where: str, ended_s: float) -> Iterator[Span]:
    """The stages that a lane carried out, one straight after the other, the last of them ending at `ended_s`."""
    stages: tuple[tuple[Stage, BenchmarkResult | Sanitized | VerifyResult | None], ...] = (
        ("benchmark", evaluation.benchmark),
        ("sanitizer", evaluation.sanitizer),
        ("verify", evaluation.verify),
    )
    for stage, result in stages:
        if result is not None:
            started_s = ended_s - result.seconds
            candidate = evaluation.candidate
            yield Span(stage=stage, where=where, candidate=candidate, started_s=started_s, ended_s=ended_s)
            ended_s = started_s


def in_order(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Spans by when they started."""
    return tuple(sorted(spans, key=lambda span: span.started_s))

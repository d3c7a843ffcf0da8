"""The tools a model may call, with their arguments; bound to one judge."""

from typing import Any, Protocol

from pydantic import Field, ValidationError

from tasks.record import Record
from tools.candidate import Candidate
from tools.describe import describe
from tools.judge import Judge
from tools.results import Refused, ToolReply, ToolResult


class CompileKernelArguments(Record):
    """Compile a candidate and construct it. Answers compiler errors at the lines of your text, or what each kernel uses
    (registers, shared memory, spills). Run this first: the other tools work on compiled candidates."""

    kernel_code: str = Field(min_length=1)
    """The whole Python module that defines ModelNew and builds its extension with load_inline."""


class VerifyArguments(Record):
    """Check a compiled candidate against the float64 oracle on shapes and inputs drawn anew: is it right?"""

    candidate: str | None = None
    """The id (or its first characters) of a candidate compiled before; without it, the one compiled last."""


class BenchmarkArguments(Record):
    """Time a compiled candidate on the benchmark shape beside the fastest PyTorch baseline: how fast is it?"""

    candidate: str | None = None
    """The id (or its first characters) of a candidate compiled before; without it, the one compiled last."""


class SubmitArguments(Record):
    """Hand in a compiled candidate as the final answer: it is built, verified and benchmarked once more, and the
    conversation ends. CUDA kernels are also run under compute-sanitizer (memcheck, racecheck, initcheck): accesses
    outside of arrays, races and uninitialised reads are faults even where outputs come out right."""

    candidate: str | None = None
    """The id (or its first characters) of a candidate compiled before; without it, the one compiled last."""


_TOOLS: dict[str, type[Record]] = {
    "compile_kernel": CompileKernelArguments,
    "verify": VerifyArguments,
    "benchmark": BenchmarkArguments,
    "submit": SubmitArguments,
}


class Tools(Protocol):
    """What the agent's loop and replay need of a toolbox."""

    def definitions(self) -> list[dict[str, object]]:
        """The tools in the JSON form of Chat Completions `tools`."""
        ...

    def call(self, name: str, arguments: str) -> ToolReply:
        """Carry out one call; `arguments` is the JSON text the model wrote. Never raises for the model's mistakes."""
        ...

    def candidate_text(self, candidate_id: str) -> str:
        """The text of a candidate seen in this toolbox."""
        ...

    def remember(self, text: str) -> None:
        """Know a candidate compiled earlier, in a conversation that goes on here; the last one told is the latest."""
        ...


class Toolbox:
    """The four tools on one judge; remembers every candidate it was given."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._seen: dict[str, Candidate] = {}
        self._latest: Candidate | None = None

    def definitions(self) -> list[dict[str, object]]:
        """The tools in the JSON form of Chat Completions `tools`."""
        return [_definition(name, arguments) for name, arguments in _TOOLS.items()]

    def candidate_text(self, candidate_id: str) -> str:
        """The text of a candidate seen in this toolbox; raises KeyError for an id it has not seen."""
        return self._seen[candidate_id].text

    def remember(self, text: str) -> None:
        """Know a candidate compiled earlier, in a conversation that goes on here; the last one told is the latest."""
        self._latest = Candidate(text)
        self._seen[self._latest.id] = self._latest

    def call(self, name: str, arguments: str) -> ToolReply:
        """Carry out one call; `arguments` is the JSON text the model wrote. Never raises for the model's mistakes."""
        before_s = self._judge.leased_s
        reply = self._call(name, arguments)
        return reply.model_copy(update={"device_seconds": self._judge.leased_s - before_s})

    def _call(self, name: str, arguments: str) -> ToolReply:
        kind = _TOOLS.get(name)
        if kind is None:
            return _refuse(f"there is no tool {name!r}; the tools are {', '.join(_TOOLS)}.")
        try:
            parsed = kind.model_validate_json(arguments or "{}")
        except ValidationError as error:
            return _refuse(f"the arguments of {name} do not fit: {_problems(error)}. Send the call again, corrected.")
        if isinstance(parsed, CompileKernelArguments):
            return self._compile(parsed.kernel_code)
        assert isinstance(parsed, VerifyArguments | BenchmarkArguments | SubmitArguments)
        found = self._find(parsed.candidate)
        return found if isinstance(found, ToolReply) else self._carry_out(name, found)

    def _compile(self, text: str) -> ToolReply:
        candidate = Candidate(text)
        self._seen[candidate.id] = candidate
        self._latest = candidate
        return self._reply(candidate, self._judge.compile(candidate))

    def _carry_out(self, name: str, candidate: Candidate) -> ToolReply:
        if name == "verify":
            return self._reply(candidate, self._judge.verify(candidate))
        if name == "benchmark":
            return self._reply(candidate, self._judge.benchmark(candidate))
        return self._reply(candidate, self._judge.evaluate(candidate, strict=True), ends_rollout=True)

    def _find(self, wanted: str | None) -> Candidate | ToolReply:
        if wanted is None:
            return self._latest or _refuse("nothing has been compiled yet; call compile_kernel first.")
        found = [candidate for key, candidate in self._seen.items() if key.startswith(wanted)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(key[:12] for key in self._seen) or "none"
        problem = "no candidate" if not found else f"{len(found)} candidates"
        return _refuse(f"{problem} with the id {wanted!r}; compiled so far: {known}.")

    @staticmethod
    def _reply(candidate: Candidate, result: ToolResult, *, ends_rollout: bool = False) -> ToolReply:
        return ToolReply(text=describe(result), result=result, candidate=candidate.id, ends_rollout=ends_rollout)


def _refuse(message: str) -> ToolReply:
    return ToolReply(text=message, result=Refused(message=message))


def _problems(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'JSON'}: {item['msg']}" for item in error.errors()[:3])


def _definition(name: str, arguments: type[Record]) -> dict[str, Any]:
    schema = arguments.model_json_schema()
    description = " ".join(str(schema.pop("description", "")).split())
    schema.pop("title", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}

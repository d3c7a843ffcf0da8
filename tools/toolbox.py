"""The tools a model may call, with their arguments; bound to one evaluator."""

from typing import Any, Protocol

from pydantic import Field, ValidationError

from tasks.record import Record
from tools.candidate import Candidate
from tools.describe import describe
from tools.evaluator import Evaluator
from tools.results import Refused, ToolReply, ToolResult

MOST_SHOWN = 80
"""Characters of what a model wrote that an answer repeats."""


class CompileKernelArguments(Record):
    """Compile a candidate and construct it. Answers compiler errors at the lines of your text, or what each kernel uses
    (registers, shared memory, spills). Run this first: the other tools work on compiled candidates."""

    kernel_code: str = Field(min_length=1)
    """The whole Python module that defines ModelNew and builds its extension with load_inline."""


class CandidateArguments(Record):
    """What most tools take."""

    candidate: str | None = None
    """The id (or its first characters) of a candidate compiled before; without it, the one compiled last."""


class VerifyArguments(CandidateArguments):
    """Check a compiled candidate against the float64 oracle on shapes and inputs drawn anew: is it right?"""


class BenchmarkArguments(CandidateArguments):
    """Time a compiled candidate on the benchmark shape beside the fastest PyTorch baseline: how fast is it?"""


class ProfileArguments(CandidateArguments):
    """Why is a compiled candidate slow? Time and share of each kernel, what is reached of the machine's peaks, grid and
    block, what limits occupancy, and hardware counters where this machine permits them."""


class SanitizeArguments(CandidateArguments):
    """Run a compiled candidate's CUDA kernels on small shapes under compute-sanitizer (memcheck, racecheck, initcheck),
    as `submit` does. Takes a minute or more. Use it for crashes, and for outputs that differ from call to call."""


class DisassembleArguments(CandidateArguments):
    """Show the machine code of one kernel of a compiled candidate and count its instructions: are loads wide, do tensor
    cores work, do registers spill?"""

    kernel: str | None = None
    """A part of the kernel's name; without it, the first one."""


class SubmitArguments(CandidateArguments):
    """Hand in a compiled candidate as the final answer: it is built, verified and benchmarked once more, and the
    conversation ends. CUDA kernels are also run under compute-sanitizer (memcheck, racecheck, initcheck): accesses
    outside of arrays, races and uninitialised reads are faults even where outputs come out right."""


_TOOLS: dict[str, type[Record]] = {
    "compile_kernel": CompileKernelArguments,
    "verify": VerifyArguments,
    "benchmark": BenchmarkArguments,
    "profile": ProfileArguments,
    "sanitize": SanitizeArguments,
    "disassemble": DisassembleArguments,
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
    """The tools on one evaluator; remembers every candidate it was given."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._seen: dict[str, Candidate] = {}
        self._latest: Candidate | None = None

    def definitions(self) -> list[dict[str, object]]:
        """The tools in the JSON form of Chat Completions `tools`."""
        return definitions()

    def candidate_text(self, candidate_id: str) -> str:
        """The text of a candidate seen in this toolbox; raises KeyError for an id it has not seen."""
        return self._seen[candidate_id].text

    def remember(self, text: str) -> None:
        """Know a candidate compiled earlier, in a conversation that goes on here; the last one told is the latest."""
        self._latest = Candidate(text)
        self._seen[self._latest.id] = self._latest

    def call(self, name: str, arguments: str) -> ToolReply:
        """Carry out one call; `arguments` is the JSON text the model wrote. Never raises for the model's mistakes."""
        before_s = self._evaluator.leased_s
        reply = self._call(name, arguments)
        return reply.model_copy(update={"device_seconds": self._evaluator.leased_s - before_s})

    def _call(self, name: str, arguments: str) -> ToolReply:
        kind = _TOOLS.get(name)
        if kind is None:
            return refuse(f"there is no tool {shown(name)}; the tools are {', '.join(_TOOLS)}.")
        try:
            parsed = kind.model_validate_json(arguments or "{}")
        except ValidationError as error:
            return refuse(f"the arguments of {name} do not fit: {problems(error)}. Send the call again, corrected.")
        if isinstance(parsed, CompileKernelArguments):
            return self._compile(parsed.kernel_code)
        assert isinstance(parsed, CandidateArguments)
        found = self.find(parsed.candidate)
        if isinstance(found, ToolReply):
            return found
        return self._reply(found, self._answer(parsed, found), ends_rollout=isinstance(parsed, SubmitArguments))

    def _compile(self, text: str) -> ToolReply:
        candidate = Candidate(text)
        self._seen[candidate.id] = candidate
        self._latest = candidate
        return self._reply(candidate, self._evaluator.compile(candidate))

    def _answer(self, asked: CandidateArguments, candidate: Candidate) -> ToolResult:
        match asked:
            case VerifyArguments():
                return self._evaluator.verify(candidate)
            case BenchmarkArguments():
                return self._evaluator.benchmark(candidate)
            case ProfileArguments():
                return self._evaluator.profile(candidate)
            case SanitizeArguments():
                return self._evaluator.sanitize(candidate)
            case DisassembleArguments():
                return self._evaluator.disassemble(candidate, asked.kernel)
            case _:
                return self._evaluator.evaluate(candidate, strict=True)

    def find(self, wanted: str | None) -> Candidate | ToolReply:
        """The candidate that an id or its beginning means, the latest for None; a refusal where there is none."""
        if wanted is None:
            return self._latest or refuse("nothing has been compiled yet; call compile_kernel first.")
        found = [candidate for key, candidate in self._seen.items() if key.startswith(wanted)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(key[:12] for key in self._seen) or "none"
        problem = "no candidate" if not found else f"{len(found)} candidates"
        return refuse(f"{problem} with the id {shown(wanted)}; compiled so far: {known}.")

    @staticmethod
    def _reply(candidate: Candidate, result: ToolResult, *, ends_rollout: bool = False) -> ToolReply:
        return ToolReply(text=describe(result), result=result, candidate=candidate.id, ends_rollout=ends_rollout)


def definitions() -> list[dict[str, object]]:
    """The tools of every toolbox, in the JSON form of Chat Completions `tools`."""
    return [definition(name, arguments) for name, arguments in _TOOLS.items()]


def tool_names() -> tuple[str, ...]:
    """The names of the tools of every toolbox."""
    return tuple(_TOOLS)


def refuse(message: str) -> ToolReply:
    """The reply to a call that cannot be carried out."""
    return ToolReply(text=message, result=Refused(message=message))


def shown(text: str) -> str:
    """What a model wrote, quoted and short: it may have written anything, and hears it again in every request."""
    return repr(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}...")


def problems(error: ValidationError) -> str:
    """What is wrong with the arguments of a call, in words."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc']))[:MOST_SHOWN] or 'JSON'}: {item['msg']}" for item in error.errors()[:3]
    )


def definition(name: str, arguments: type[Record]) -> dict[str, Any]:
    """A tool in the JSON form of Chat Completions `tools`, from the record of its arguments."""
    schema = arguments.model_json_schema()
    description = " ".join(str(schema.pop("description", "")).split())
    schema.pop("title", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}

"""Shows the machine code of a candidate's kernel or host function: reads the library that was built, runs nothing."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tasks.errors import HarnessError
from tasks.spec import Target
from tools import host_code, process, sass
from tools.cache import workplace
from tools.candidate import Candidate
from tools.confinement import for_compiler
from tools.construction import constructed
from tools.demangling import demangled
from tools.disassembly_results import Disassembled
from tools.instructions import Instruction, densest, hottest_loop
from tools.kept_builds import KeptBuild
from tools.session import Session
from tools.toolchain import find_cuobjdump

LISTED = 120
"""Instructions that are shown; of a longer function those of its loop with the most arithmetic."""
NAMES_SHOWN = 20
NAME_WIDTH = 200
_TIMEOUT_S = 60.0
_NO_CUOBJDUMP = (
    "cuobjdump is not installed: it is neither on PATH nor in the CUDA toolkit nor beside Triton. A full installation "
    "of the toolkit has it."
)
_NO_OBJDUMP = "objdump is not installed: apt-get install binutils."


class _UnreadableError(Exception):
    """The program that disassembles failed on the candidate's library, whoever's fault that is."""


class _Program(NamedTuple):
    """The program that disassembles for a target, and how its output is read."""

    path: Path
    names: list[str]
    """The arguments, before the library, that list its functions."""
    parse_names: Callable[[str], list[str]]
    """Mangled, the most interesting first."""
    code: Callable[[str], list[str]]
    """The arguments, before the library, that disassemble one function."""
    parse: Callable[[str], list[Instruction]]
    kind: Callable[[Instruction], str]
    architecture: Callable[[str], str]
    """From the same output as the instructions."""


def disassemble_candidate(session: Session, candidate: Candidate, wanted: str | None) -> Disassembled:
    """The code of the function whose demangled name holds `wanted`, or of the first.

    Raises:
        CandidateFault: it does not build, import or construct.
        HarnessError: the program that disassembles could not be started.
    """
    program = _program(session.target)
    if isinstance(program, str):
        return Disassembled(candidate=candidate.id, note=program)
    try:
        return _disassembled(session, candidate, wanted, program)
    except _UnreadableError as error:
        return Disassembled(candidate=candidate.id, note=str(error))


def _disassembled(session: Session, candidate: Candidate, wanted: str | None, program: _Program) -> Disassembled:
    started = time.monotonic()
    extensions, note = constructed(session, candidate)
    builds = [session.builder.kept(extension.key) for extension in extensions]
    functions = {
        name: build for build in builds for name in program.parse_names(_run(program, [*program.names], build))
    }
    plain = {name: demangled(name)[:NAME_WIDTH] for name in functions}
    chosen = next((name for name in functions if wanted is None or wanted in plain[name] or wanted == name), None)
    result = Disassembled(
        candidate=candidate.id,
        others=tuple(plain[name] for name in functions if name != chosen)[:NAMES_SHOWN],
        note=note,
        seconds=time.monotonic() - started,
    )
    if chosen is None:
        missing = (
            "the candidate has no kernel" if wanted is None else f"no function's name holds {wanted[:NAME_WIDTH]!r}"
        )
        return result.model_copy(update={"note": f"{missing}. {note}".strip()})
    output = _run(program, program.code(chosen), functions[chosen])
    found = {"function": plain[chosen], "architecture": program.architecture(output)}
    return result.model_copy(update={**found, **_described(program.parse(output), program.kind, note)})


def _described(code: Sequence[Instruction], kind: Callable[[Instruction], str], note: str) -> dict[str, object]:
    shown = code
    if len(code) > LISTED:
        loop = hottest_loop(code)
        shown = densest(code if loop is None else loop, LISTED)
        where = "with the most arithmetic" if loop is None else "of the innermost loop with the most arithmetic"
        note = f"{note} {len(shown)} of {len(code)} instructions are listed, {where}.".strip()
    return {
        "mix": dict(Counter(map(kind, code)).most_common()),
        "instructions": len(code),
        "listing": "\n".join(f"{each.address:05x}  {each.text}" for each in shown),
        "note": note,
    }


def _program(target: Target) -> _Program | str:
    """The program for a target; or why there is none."""
    if target is Target.CUDA:
        path = find_cuobjdump()
        if path is None:
            return _NO_CUOBJDUMP
        return _Program(
            path,
            ["--dump-resource-usage"],
            sass.function_names,
            lambda name: ["--dump-sass", "--function", name],
            sass.parse,
            sass.kind,
            sass.architecture,
        )
    found = shutil.which("objdump")
    if found is None:
        return _NO_OBJDUMP
    return _Program(
        Path(found),
        ["--syms"],
        host_code.function_names,
        lambda name: ["--no-show-raw-insn", "-M", "intel", f"--disassemble={name}"],
        host_code.parse,
        host_code.kind,
        lambda _: "",
    )


def _run(program: _Program, arguments: list[str], build: KeptBuild) -> str:
    """What it prints; confined as a compiler is, because the library is the candidate's."""
    folder = build.library.parent
    argv = [str(program.path), *arguments, str(build.library)]
    with workplace(folder.parent) as work:
        readable = [folder, program.path.resolve().parent]
        try:
            done = process.run(for_compiler(work, read=readable).command(argv), cwd=work, timeout_s=_TIMEOUT_S)
        except OSError as error:
            raise HarnessError(f"{program.path} could not be started: {error}") from error
    if done.timed_out or done.returncode:
        ended = f"was stopped after {_TIMEOUT_S:.0f} s" if done.timed_out else f"ended with code {done.returncode}"
        said = done.output.strip()[-500:]
        raise _UnreadableError(f"{program.path.name} {ended} on the candidate's library, so nothing is shown: {said}")
    return done.output

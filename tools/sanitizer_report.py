"""Reads the text that compute-sanitizer writes to its --log-file.

The text, not --xml: NVIDIA documents the text of each tool by examples (user manual, "Understanding Memcheck Errors",
"Understanding Racecheck Analysis Reports", "Example Use of Initcheck"), and publishes neither a schema of the XML nor
an example of racecheck's. Both spellings of a place are read: `at kernel(float *)+0x70 in file.cu:41` since 2022, and
`at 0x70 in file.cu:41:kernel(float*)` before.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tools.sanitizer_results import SanitizerFinding

FINDINGS_KEPT = 8
_EXCERPT_LINES = 6
_EXCERPT_WIDTH = 200

_PREFIX = re.compile(r"^=+(?: |$)")
_SUMMARY = re.compile(r"^\w+ SUMMARY: \d+ (?:error|hazard)s?\b", re.MULTILINE)
_UNPRINTED = re.compile(r"^ERROR SUMMARY: (\d+) errors? (?:was|were) not printed", re.MULTILINE)
# Not the errors that say how the program ended: a kernel that is found to read wild addresses ends it so.
_TROUBLE = re.compile(
    r"^(?:Internal Sanitizer Error|Warning: Detected overflow"
    r"|Error: (?!Race reported|Potential|process didn't|couldn't find exit code)).*",
    re.IGNORECASE | re.MULTILINE,
)
_RACE = re.compile(r"^(?P<severity>\w+): Race reported between (?P<access>\w+) access (?P<place>at .+)$", re.IGNORECASE)
_OTHER_ACCESS = re.compile(r"^and (?P<access>\w+) access at .*?(?:\[(?P<hazards>\d+) hazards?\])?$")
_PLACES = (
    re.compile(r"^at (?P<function>.+?)[+:](?P<offset>0x[0-9a-f]+)(?: in (?P<file>.+?))?(?: \[\d+ hazards?\])?$"),
    re.compile(r"^at (?P<offset>0x[0-9a-f]+) in (?:(?P<file>[^:]+:\d+):)?(?P<function>.+)$"),
)
_FRAME = re.compile(r"^Device Frame:\s*(?:\S+:\d+:)?(?P<function>.+?)(?:\+0x| \[0x| in \S+:\d+|$)")
_WHO = re.compile(r"^by thread (?P<thread>\([\d, ]+\)) in block (?P<block>\([\d, ]+\))")
_CAUSE = re.compile(r"\bis (?P<cause>out of bounds|misaligned)")
_LIBRARIES = re.compile(
    r"^(?:at|c10|torch|thrust|cub|cudnn|cublas|cublasLt|cutlass|cask\w*)::|^(?:cudnn|cublas|nvjet|sm\d+|ampere|volta)_"
)


@dataclass(frozen=True)
class Report:
    """What a log says of the candidate's kernels."""

    findings: tuple[SanitizerFinding, ...]
    """One for each kind and place, errors before warnings."""
    complete: bool
    """Whether the tool came to its summary."""
    unprinted: int
    """Errors that the tool counted and did not print."""
    trouble: str
    """What the tool says about itself that takes away the log's worth; empty for nothing."""


def parse_report(log: str, kernels: Collection[str]) -> Report:
    """Read a log; `kernels` are the names of the kernels that the candidate's builds report.

    A finding counts unless it is in a kernel of PyTorch or one of its libraries. It is left to those that are known by
    their namespace, so that a kernel which the candidate made in some other way counts; and one that it named like
    PyTorch's counts where its builds report it. The tools are not told to leave kernels out: to initcheck, what a
    skipped kernel wrote would be uninitialised.
    """
    own = {base_name(name) for name in kernels}
    text = "\n".join(_PREFIX.sub("", line, count=1) for line in log.splitlines() if _PREFIX.match(line))
    counts: Counter[tuple[str, ...]] = Counter()
    first: dict[tuple[str, ...], SanitizerFinding] = {}
    for lines in _records(text):
        finding = _finding(lines)
        owner = None if finding is None else _owner(finding.kernel, lines, own)
        if finding is None or owner is None:
            continue
        finding = finding.model_copy(update={"kernel": owner})
        key = (finding.severity, finding.kind, finding.kernel, finding.location)
        counts[key] += finding.count
        first.setdefault(key, finding)
    findings = [finding.model_copy(update={"count": counts[key]}) for key, finding in first.items()]
    findings.sort(key=lambda finding: finding.severity != "error")
    unprinted = _UNPRINTED.search(text)
    trouble = _TROUBLE.search(text)
    return Report(
        findings=tuple(findings),
        complete=_SUMMARY.search(text) is not None,
        unprinted=int(unprinted[1]) if unprinted else 0,
        trouble=trouble[0].strip() if trouble else "",
    )


def base_name(function: str) -> str:
    """A device function's name with its namespaces, without return type, template arguments and arguments."""
    name = re.split(r"[<(]", function.replace("(anonymous namespace)", "{anonymous}"), maxsplit=1)[0].strip()
    return name.rsplit(" ", 1)[-1].replace("{anonymous}", "(anonymous namespace)")


def _records(text: str) -> Iterator[list[str]]:
    """The records of a report: a line that is not indented, and the indented ones below it."""
    record: list[str] = []
    for line in text.splitlines():
        if not line.startswith(" ") or not line.strip():
            if record:
                yield record
            record = []
        if line.strip():
            record.append(line.strip())
    if record:
        yield record


def _finding(lines: list[str]) -> SanitizerFinding | None:
    """What a record says of device code; None for one about the host, and for the tool's own lines."""
    excerpt = "\n".join(line[:_EXCERPT_WIDTH] for line in lines[:_EXCERPT_LINES])
    race = _RACE.match(lines[0])
    place = _place([race["place"]] if race else lines[1:])
    if place is None:
        return None
    kernel, location = place
    if race:
        others = [match for line in lines[1:] if (match := _OTHER_ACCESS.match(line))]
        accesses = dict.fromkeys([race["access"], *(match["access"] for match in others)])
        return SanitizerFinding(
            severity="error" if race["severity"].lower() == "error" else "warning",
            kind=f"a race between accesses of type {' and '.join(name.lower() for name in accesses)}",
            kernel=kernel,
            location=location,
            count=max(1, sum(int(match["hazards"] or 0) for match in others)),
            excerpt=excerpt,
        )
    who = next((match for line in lines[1:] if (match := _WHO.match(line))), None)
    cause = next((match["cause"] for line in lines[1:] if (match := _CAUSE.search(line))), "")
    return SanitizerFinding(
        severity="warning" if lines[0].lower().startswith(("warn", "info")) else "error",
        kind=f"{lines[0]}, {cause}" if cause else lines[0],
        kernel=kernel,
        location=location,
        block=who["block"] if who else "",
        thread=who["thread"] if who else "",
        excerpt=excerpt,
    )


def _place(lines: list[str]) -> tuple[str, str] | None:
    """The device function and the location of the first line that names a place."""
    for line in lines:
        for pattern in _PLACES:
            if match := pattern.match(line):
                file = f"{match['file']}, " if match["file"] else ""
                return base_name(match["function"]), f"{file}offset {match['offset']}"
    return None


def _owner(function: str, lines: list[str], own: set[str]) -> str | None:
    """The candidate's function that an access counts for, itself or a caller of it; None for a library's access."""
    frames = [base_name(match["function"]) for line in lines if (match := _FRAME.match(line))]
    known = next((name for name in (function, *frames) if name in own), None)
    if known is not None or any(_LIBRARIES.match(name) for name in (function, *frames)):
        return known
    return function

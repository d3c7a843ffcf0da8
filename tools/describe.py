"""What a model hears of a result: short, the first errors whole, the rest counted."""

from collections.abc import Sequence

from tools.describe_profile import describe_disassembly, describe_profile
from tools.disassembly_results import Disassembled
from tools.kernel_resources import KernelResources
from tools.profile_results import Profiled
from tools.results import (
    Built,
    Check,
    Determinism,
    Diagnostic,
    Evaluation,
    Fault,
    Foreign,
    Refused,
    Timed,
    ToolResult,
    Verified,
)
from tools.sanitizer_results import Sanitized, SanitizerRun
from tools.text_results import Compared, GuideRead
from tools.units import format_ns
from tools.verdict import Verdict

ERRORS_SHOWN = 3
WARNINGS_SHOWN = 3
KERNELS_SHOWN = 8
EXCERPT_WIDTH = 160
DISTURBED_RATIO = 1.3
"""An interval whose ends are further apart than this says little."""


def describe(result: ToolResult) -> str:
    """The text of a result for the model."""
    match result:
        case Built():
            return _built(result)
        case Verified():
            return _verified(result)
        case Timed():
            return _timed(result)
        case Fault():
            return _fault(result)
        case Evaluation():
            return _evaluation(result)
        case Profiled():
            return describe_profile(result)
        case Sanitized():
            return _sanitized_alone(result)
        case Disassembled():
            return describe_disassembly(result)
        case GuideRead():
            return f"guide {result.name}".strip()
        case Compared():
            return f"candidate {result.candidate[:12]} against the best so far, {result.best[:12]}"
        case Refused():
            return result.message
        case Foreign():
            return "answered by a tool that is not here; its own words are in the transcript"


def _built(result: Built) -> str:
    lines = [f"compiled: candidate {result.candidate[:12]}, {result.seconds:.1f} s"]
    if not result.extensions:
        lines.append(f"warning: there is no kernel of your own in this candidate: {result.note}")
    for extension in result.extensions:
        cached = " (from the cache)" if extension.cached else ""
        lines.append(f"extension {extension.label!r}: {extension.seconds:.1f} s{cached}")
        lines += [f"  {_kernel(kernel)}" for kernel in extension.kernels[:KERNELS_SHOWN]]
        lines += _more(len(extension.kernels) - KERNELS_SHOWN, "kernel")
        lines += [f"  {line}" for item in extension.warnings[:WARNINGS_SHOWN] for line in _diagnostic(item)]
        lines += _more(len(extension.warnings) - WARNINGS_SHOWN, "warning")
    return "\n".join(lines)


def _kernel(kernel: KernelResources) -> str:
    text = f"{kernel.name}: {kernel.registers} registers, {kernel.shared_bytes} bytes shared"
    if kernel.spill_store_bytes or kernel.spill_load_bytes:
        text += f", spills {kernel.spill_store_bytes} bytes stored and {kernel.spill_load_bytes} loaded"
    if kernel.stack_bytes:
        text += f", {kernel.stack_bytes} bytes of stack"
    return text


def _more(count: int, noun: str) -> list[str]:
    return [f"  and {count} more {noun}{'s' if count > 1 else ''}"] if count > 0 else []


def _diagnostic(item: Diagnostic) -> list[str]:
    where = f"{item.file}:{item.line}" if item.line is not None else item.file
    return [f"{where}: {item.severity}: {item.message}", *(line[:EXCERPT_WIDTH] for line in item.excerpt.splitlines())]


def _fault(result: Fault) -> str:
    lines = [f"{result.verdict} ({result.stage}, candidate {result.candidate[:12]}): {result.message}"]
    if result.likely:
        lines.append(f"likely: {result.likely}")
    errors = [item for item in result.diagnostics if item.severity == "error"]
    for item in errors[:ERRORS_SHOWN]:
        lines += _diagnostic(item)
    warnings = len(result.diagnostics) - len(errors)
    lines += _more(len(errors) - ERRORS_SHOWN, "error") + _more(warnings, "warning")
    return "\n".join(lines)


def _verified(result: Verified) -> str:
    worst = max(result.checks, key=lambda check: _closest_figure(check)[0])
    _, figure, error, limit = _closest_figure(worst)
    return (
        f"correct: {len(result.checks)} comparisons in class {result.precision}, {result.seconds:.1f} s. Closest to "
        f"its limit: {worst.output} ({worst.trial}), {figure} {error:.1e}, allowed {limit:.1e}."
        f"{_determinism(result.determinism)}{_own_share(result.own_kernel_share)}"
    )


def _own_share(share: float | None) -> str:
    return "" if share is None else f" The candidate's own kernels take {share:.1%} of the GPU's time in a call."


def _determinism(found: Determinism | None) -> str:
    if found is None:
        return ""
    if found.identical == found.calls:
        return f" Deterministic: {found.calls} calls with the same inputs answered the same bits."
    return (
        f" Not deterministic, which is allowed: of {found.calls} calls with the same inputs ({found.trial}) "
        f"{found.identical} answered the bits of the first; the largest difference is {found.largest_difference:.1e} "
        "of its channel's RMS."
    )


def _closest_figure(check: Check) -> tuple[float, str, float, float]:
    """Of a check's three figures the one that is closest to its limit: the share used, its name, error and limit."""
    figures = (
        ("relative RMS error", check.rms_error, check.rms_limit),
        ("relative RMS error of the worst channel", check.channel_error, check.channel_limit),
        ("error of the worst element over its channel's RMS", check.peak_error, check.peak_limit),
    )
    return max((error / limit, name, error, limit) for name, error, limit in figures)


def _timed(result: Timed) -> str:
    interval = result.speedup_interval
    if interval.holds(1.0):
        claim = "not distinguishable from the baseline"
    else:
        claim = "faster than the baseline" if result.speedup > 1 else "slower than the baseline"
    lines = [
        f"{format_ns(result.median_ns)} a call (median), {result.speedup:.3f}x the fastest baseline "
        f"[{interval.low:.3f}, {interval.high:.3f}]: {claim}",
    ]
    if result.disturbance:
        lines.append(f"disturbed: {result.disturbance}")
    if interval.high > DISTURBED_RATIO * interval.low:
        lines.append("the machine was disturbed meanwhile (see the interval): benchmark again before you rely on this")
    for item in result.baselines:
        took = (
            format_ns(item.median_ns) if item.median_ns is not None else f"not available: {item.note.splitlines()[0]}"
        )
        chosen = (
            f"; {format_ns(result.baseline_ns)} in the interleaved measurement" if item.name == result.baseline else ""
        )
        lines.append(f"baseline {item.name}: {took}{chosen}")
    if result.floor_ns is not None:
        lines.append(
            f"floor (roofline): {format_ns(result.floor_ns)}; reached {result.floor_ns / result.median_ns:.1%}"
        )
    if result.code is not None:
        code = result.code
        lines.append(
            f"time by whose code ran ({code.looks} looks within calls): the candidate's own extension {code.own:.0%}, "
            f"PyTorch {code.pytorch:.0%}, Python and the C library {code.runtime:.0%}, other code {code.library:.0%}"
        )
    if result.prepare_ns:
        lines.append(f"prepare() took {format_ns(result.prepare_ns)} once, not counted")
    return "\n".join(lines)


def _evaluation(result: Evaluation) -> str:
    lines = [f"submitted: {result.verdict}"]
    lines += [describe(part) for part in (result.build, result.verify) if part is not None]
    if result.sanitizer is not None:
        lines += _sanitized_lines(result.sanitizer)
    if result.benchmark is not None:
        lines.append(describe(result.benchmark))
    return "\n".join(lines)


def _sanitized_alone(result: Sanitized) -> str:
    shapes = f" on {'; '.join(result.shapes)}" if result.shapes else ""
    return "\n".join([f"compute-sanitizer, candidate {result.candidate[:12]}{shapes}", *_sanitized_lines(result)])


def _sanitized_lines(result: Sanitized) -> list[str]:
    lines = [] if result.verdict is Verdict.CORRECT else [f"{result.verdict} (sanitizer): {result.message}"]
    lines += summarize_runs(result.runs)
    for finding in (finding for run in result.runs for finding in run.findings[:1]):
        lines += [f"  {line}" for line in finding.excerpt.splitlines()]
    return lines


def summarize_runs(runs: Sequence[SanitizerRun]) -> list[str]:
    """What compute-sanitizer said, a line for each tool, or one where all were kept from it by the same."""
    reasons = {run.reason for run in runs if run.outcome == "not_run"}
    if len(reasons) == 1 and all(run.outcome == "not_run" for run in runs):
        tools = ", ".join(run.tool for run in runs)
        return [f"compute-sanitizer ({tools}): not run, so nothing is known: {reasons.pop()}"]
    return [f"compute-sanitizer {_run(run)}" for run in runs]


def _run(run: SanitizerRun) -> str:
    if run.outcome == "not_run":
        return f"{run.tool}: not run, so nothing is known: {run.reason}"
    counts = [(len(run.errors), "error"), (len(run.findings) - len(run.errors), "warning")]
    said = [f"{count} {noun}{'s' if count > 1 else ''}" for count, noun in counts if count]
    if run.outcome == "clean":
        said.insert(0, "clean")
    return f"{run.tool}: {', '.join(said)} ({run.seconds:.1f} s)"

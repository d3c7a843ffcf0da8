"""Compares what a call returned with the oracle, and says in words what is wrong."""

import sys

import torch

from tasks.spec import Precision
from tools.accuracy import NO_ERROR, SMALLEST_RMS, Errors, Limits, limits, measure, measure_roughly, rms_of
from tools.oracle import Answer
from tools.pieces import all_same_bits, pieces_of, same_bits
from tools.results import Check
from tools.subject import Named, Returned
from tools.verdict import Verdict
from tools.workers import CandidateFault

ROUNDING_RMS = 0.01
"""Errors below this, with no element far off, may be rounding: bf16, the shortest class, stays below it."""


def require_unchanged(returned: Returned, inputs: list[tuple[str, torch.Tensor]], where: str) -> None:
    """Raise `CandidateFault` if a call changed an input by a single bit."""
    if len(returned.inputs) != len(inputs):
        raise CandidateFault(Verdict.NO_RESULT, f"the worker's answer lacks the inputs as they are after it ({where}).")
    same = all_same_bits([(before, after) for (_, before), after in zip(inputs, returned.inputs, strict=True)])
    for (name, _), one in zip(inputs, same, strict=True):
        if not one:
            raise CandidateFault(
                Verdict.INPUT_MUTATED,
                f"the call changed its input {name!r} ({where}); write to a tensor of your own, for example "
                "torch::empty_like(x).",
            )


def typical_rms(answers: list[Answer]) -> float:
    """The median over trials of the honest RMS error of the first output."""
    errors = sorted(_honest_rms(answer) for answer in answers)
    return errors[len(errors) // 2] if errors else 0.0


def _honest_rms(answer: Answer) -> float:
    first = answer.exact[0][0] if answer.exact else ""
    measured = [errors[first] for errors in answer.honest if first in errors]
    return max((errors.rms for errors in measured if not errors.pattern_broken), default=0.0)


class LimitsOf:
    """The limits of one task's class, with the typical honest error of a session's trials."""

    def __init__(self, precision: Precision, typical: float) -> None:
        self.precision = precision
        self.typical = typical

    def output(self, answer: Answer, index: int) -> Limits:
        """The limits of one output of an answer."""
        name, exact = answer.exact[index]
        if not exact.is_floating_point():
            return limits(self.precision, [], 0.0)
        honest = [errors[name] for errors in answer.honest]
        # Only the main output's error is pooled: a buffer's is another quantity.
        return limits(self.precision, honest, self.typical if index == 0 else 0.0, answer.cut.get(name, NO_ERROR))


def compare(returned: Returned, answer: Answer, limits_of: LimitsOf, where: str, verdict: Verdict) -> list[Check]:
    """The checks of every output and updated buffer.

    Raises:
        CandidateFault: with `verdict` at the first output that is wrong in form or value; its message says which
            output, on which inputs, by how much and where.
    """
    outputs = require_same_form(returned, answer, where)
    checks = []
    for index, (name, exact) in enumerate(answer.exact):
        output = outputs[name]
        if not exact.is_floating_point():
            if not same_bits(output, exact.to(output.device)):
                raise CandidateFault(verdict, f"{name} is wrong ({where}): integers must be equal to the reference's.")
            checks.append(_exactly_equal(name, where))
            continue
        errors = measure(output, exact)
        allowed = limits_of.output(answer, index)
        check = Check(
            trial=where,
            output=name,
            rms_error=errors.rms,
            rms_limit=allowed.rms,
            channel_error=errors.channel,
            channel_limit=allowed.channel,
            peak_error=errors.peak,
            peak_limit=allowed.peak,
        )
        if not allowed.allow(errors):
            message = _explain(name, output, exact, errors, allowed, where, limits_of)
            raise CandidateFault(verdict, message, excess=allowed.used_by(errors), output=name)
        checks.append(check)
    return checks


def _exactly_equal(name: str, where: str) -> Check:
    limit = sys.float_info.min
    return Check(
        trial=where,
        output=name,
        rms_error=0.0,
        rms_limit=limit,
        channel_error=0.0,
        channel_limit=limit,
        peak_error=0.0,
        peak_limit=limit,
    )


def compare_quickly(returned: Returned, working: Named, loose: list[Limits], where: str) -> None:
    """Raise `CandidateFault` with `stale_output` where an output is far from PyTorch's answer to the same inputs."""
    same_form = Answer(working, [], {name: value.dtype for name, value in working})
    outputs = require_same_form(returned, same_form, where)
    for (name, expected), allowed in zip(working, loose, strict=True):
        output = outputs[name]
        if not expected.is_floating_point():
            wrong = not same_bits(output, expected)
        else:
            wrong = not allowed.allow(measure_roughly(output, expected))
        if wrong:
            raise CandidateFault(
                Verdict.STALE_OUTPUT,
                f"{name} of {where} is not the answer to that call's inputs, although the untimed checks passed. Every "
                "call has new inputs at new addresses: compute all of the output in every call, keep nothing from "
                "earlier ones.",
            )


def require_same_form(returned: Returned, answer: Answer, where: str) -> dict[str, torch.Tensor]:
    """The outputs by name, once names, shapes and dtypes are the answer's; the order of a dict does not count."""
    names = [name for name, _ in returned.outputs]
    expected = [name for name, _ in answer.exact]
    if sorted(names) != sorted(expected):
        raise CandidateFault(
            Verdict.CONTRACT_ERROR, f"forward returns {names or 'nothing'}; the reference returns {expected} ({where})."
        )
    outputs = dict(returned.outputs)
    for name, exact in answer.exact:
        output, dtype = outputs[name], answer.dtypes[name]
        if output.shape != exact.shape:
            raise CandidateFault(
                Verdict.INCORRECT,
                f"{name} has shape {tuple(output.shape)}; the reference's has {tuple(exact.shape)} ({where}).",
            )
        if output.dtype != dtype:
            raise CandidateFault(
                Verdict.INCORRECT, f"{name} has dtype {output.dtype}; the reference's has {dtype} ({where})."
            )
    return outputs


def _explain(
    name: str,
    output: torch.Tensor,
    exact: torch.Tensor,
    errors: Errors,
    allowed: Limits,
    where: str,
    limits_of: LimitsOf,
) -> str:
    at = errors.peak_at
    got, want = float(output[at]), float(exact[at])
    place = f"[{', '.join(map(str, at))}]"
    if errors.pattern_broken:
        return (
            f"{name} holds {errors.pattern_broken} of {exact.numel()} elements that are NaN or infinite where the "
            f"reference is not (or the reverse), first at {place}: {got:.6g}, should be {want:.6g} ({where}). "
            "Elements that were never written show as NaN."
        )
    text = (
        f"{name} is wrong ({where}): relative RMS error {errors.rms:.2e} (limit {allowed.rms:.2e}), worst channel "
        f"{errors.channel:.2e} (limit {allowed.channel:.2e}), worst element {errors.peak:.2e} of its channel's RMS "
        f"(limit {allowed.peak:.2e}) at {place} of shape {tuple(exact.shape)}: {got:.6g}, should be {want:.6g}."
    )
    if errors.rms < ROUNDING_RMS and errors.peak < 0.1:
        return (
            f"{text} This looks like rounding, if it is no small mistake such as another epsilon: the task's precision "
            f"class is {limits_of.precision}, and 16-bit or otherwise shortened operands do not meet it."
        )
    return text + _where_wrong(output, exact, allowed)


def _where_wrong(output: torch.Tensor, exact: torch.Tensor, allowed: Limits) -> str:
    """How many elements are off, in how many channels, and whether they lie at the ends of the last dimension."""
    least = allowed.peak * max(rms_of(exact), SMALLEST_RMS)
    count = 0
    length = exact.shape[-1] if exact.ndim else 1
    columns = torch.zeros(length, dtype=torch.bool, device=exact.device)
    channels = torch.zeros(exact.shape[1] if exact.ndim > 2 else 1, dtype=torch.bool, device=exact.device)
    for piece in pieces_of(exact):
        off = (output[piece].to(torch.float64) - exact[piece]).abs() > least
        count += int(off.sum())
        columns[piece[-1] if piece else slice(None)] |= off.reshape(-1, *exact[piece].shape[-1:]).any(0)
        if exact.ndim > 2:
            channels[piece[1]] |= off.transpose(0, 1).flatten(1).any(1)
    share = count / exact.numel()
    text = f" {share:.1%} of the elements are off by more than the element limit"
    wrong = channels.nonzero().flatten()
    if 0 < len(wrong) < len(channels):
        text += f", in {len(wrong)} of {len(channels)} channels, first in {int(wrong[0])}"
    if length > 1 and 0 < share < 0.5:
        ends = columns.nonzero().flatten()
        first, last = int(ends[0]), int(ends[-1])
        text += f", all of them between {first} and {last} along the last dimension (length {length})"
        if first == 0 or last == length - 1:
            edge = "the left edge" if first == 0 else "the right edge"
            text += ", from edge to edge" if last - first == length - 1 else f", at {edge}"
    return text + "."

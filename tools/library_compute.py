"""Library compute: what ran in a call that is not the candidate's own work, and how much of the device's time is."""

import re
from collections.abc import Iterable

from tools.code_shares import Tally
from tools.demangling import demangled, grows, nested_name
from tools.results import Extension
from tools.subject import Returned
from tools.verdict import Verdict
from tools.workers import CandidateFault

_UNNAMED = re.compile(r"\(anonymous namespace\)::|_GLOBAL__N_[^:]*::|\{anonymous\}::")
_SHOWN = 24
_PLAIN_OF_PYTORCH = re.compile(r"copy|fill|cat|arange|transpose", re.IGNORECASE)
"""What the names of PyTorch's kernels hold that allocate, move or copy (`tools.worker.watch.PLAIN_OPERATORS`)."""
# A candidate could define an unused kernel by the name of a library's.
_NAMES_OF_LIBRARIES = re.compile(
    r"cudnn|cublas|cutlass|cusparse|cufft|cask_|nvjet_|sm\d+_xmma_|xmma_|implicit_convolve_|splitKreduce_"
    r"|(volta|turing|ampere|hopper|maxwell)_\w*(gemm|cudnn)|gemv(NSP|2[NT])|gemvx::|gemmk1_|gemmSN_|triton_"
)
_ALLOWED = (
    "Allocation, views and copies are fine; arithmetic must be done by kernels in the candidate's own source "
    "(or evaluate with --allow-library)."
)


def require_own_operators(computing: dict[str, int], where: str) -> None:
    """Raise `CandidateFault` with `library_compute` where PyTorch's operators computed."""
    if computing:
        counted = ", ".join(f"{name} ({count}x)" for name, count in sorted(computing.items())[:_SHOWN])
        raise CandidateFault(Verdict.LIBRARY_COMPUTE, f"forward lets PyTorch compute ({where}): {counted}. {_ALLOWED}")


def require_own_code(accusing: Tally | None) -> None:
    """Raise `CandidateFault` with `library_compute` where looks from outside have found too much of other code."""
    if accusing is not None:
        raise CandidateFault(Verdict.LIBRARY_COMPUTE, f"{accusing.explained()}. {_ALLOWED}")


def require_no_library_calls(extensions: Iterable[Extension]) -> None:
    """Raise `CandidateFault` with `library_compute` where an extension calls what computes past the dispatcher."""
    calls = sorted({name for extension in extensions for name in extension.library_calls})
    if calls:
        raise CandidateFault(
            Verdict.LIBRARY_COMPUTE,
            f"the extension calls functions of libraries that compute: {', '.join(calls[:_SHOWN])}. {_ALLOWED}",
        )


def require_own_kernels(returned: Returned, extensions: Iterable[Extension], where: str) -> None:
    """Raise `CandidateFault` with `library_compute` where a kernel ran that no source of the candidate's defines.

    The names are what the GPU ran (CUPTI), against what ptxas compiled. Of PyTorch's own, those that copy are fine, and
    names of libraries are nobody else's; where ptxas named no kernel, nothing can be told.
    """
    own = own_names(extensions)
    foreign = {name: n for name, (n, _) in returned.launched.items() if not (_copies(name) or bare(name) in own)}
    if own and foreign:
        counted = ", ".join(f"{name[:120]} ({count}x)" for name, count in sorted(foreign.items())[:_SHOWN])
        raise CandidateFault(
            Verdict.LIBRARY_COMPUTE,
            f"forward launched kernels that no extension of the candidate's defines ({where}): {counted}. {_ALLOWED} "
            "One that is named like a library's counts as the library's: rename it.",
        )


def own_share(returned: Returned, extensions: Iterable[Extension]) -> float | None:
    """The share of a call's kernel time that the candidate's own kernels took; None where no kernel was seen."""
    total = sum(ns for _, ns in returned.launched.values())
    own = own_names(extensions)
    if not total or not own:
        return None
    return sum(ns for name, (_, ns) in returned.launched.items() if bare(name) in own) / total


def own_names(extensions: Iterable[Extension]) -> frozenset[str]:
    """The bare names of all kernels that extensions define, but for those that are named like a library's."""
    names = {bare(kernel.name) for extension in extensions for kernel in extension.kernels}
    return frozenset(name for name in names if not _NAMES_OF_LIBRARIES.match(name))


def bare(name: str) -> str:
    """A kernel's name with its namespaces, without return type, template arguments, parameters and unnamed namespaces,
    which tools print in different ways; mangled or not."""
    if name.startswith("_Z"):
        name = nested_name(name) if grows(name) else demangled(name)
    plain = _UNNAMED.sub("", name)
    return re.split(r"[<(]", plain, maxsplit=1)[0].split(" ")[-1]


def _copies(name: str) -> bool:
    return re.match(r"(?:void )?at::", name) is not None and _PLAIN_OF_PYTORCH.search(name) is not None

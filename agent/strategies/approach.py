"""The approach of a candidate: a few features of its source by which candidates of a population are told apart.

They are read off the text, comments left out, so they say what the source mentions, not what the compiler made of it or
what runs: enough to keep a population from being ten versions of one idea, and never used for a verdict or a score.
"""

import re
from typing import NamedTuple

_COMMENT = re.compile(
    r"/\*.*?(?:\*/|\Z)|//[^\n]*|^[ \t]*#(?!\s*(?:pragma|include|define|if|el|endif|undef))[^\n]*", re.S | re.M
)
_TENSOR_CORES = re.compile(r"\bwmma\b|\bwgmma\b|\bmma(?:_|\.)sync|\btcgen05\b|\bcute::|\bcutlass\b")
_ASYNC_COPIES = re.compile(r"\bcp\.async|\b__pipeline_|\bcuda::memcpy_async|\bcp_async|\bCUtensorMap\b")
_SHARED = re.compile(r"\b__shared__\b")
_THREADS = re.compile(
    r"#\s*pragma\s+omp\s+(?:\w+\s+){0,8}?(?:parallel|target|task)\b|\bstd::j?thread\b|\bat::parallel_for\b"
)
_UNROLLED = re.compile(r"#\s*pragma\s+(?:GCC\s+)?unroll\b")
_PREPARES = re.compile(r"\bdef\s+(?:prepare|load_reference)\b")
_KERNELS = re.compile(r"\b__global__\b")
_CONSTANTS = re.compile(
    r"\b(?:constexpr|const)\s+(?:\w+\s+){1,4}?(\w+)\s*=\s*(\d{1,18})\s*;|#\s*define\s+(\w+)\s+(\d{1,18})\b"
)
"""Bounded, as are the other repetitions: a candidate is whatever a model wrote, and none may hold a run up."""
_VECTORS = (
    (16, re.compile(r"\b_mm512_|\b__m512")),
    (8, re.compile(r"\b_mm256_|\b__m256")),
    (4, re.compile(r"\b(?:float|int|uint)4\b|\b_mm_|\b__m128")),
    (2, re.compile(r"\b(?:float|int|uint|half|__half|__nv_bfloat16)2\b")),
)
_SIMD_PRAGMA = re.compile(r"#\s*pragma\s+(?:omp\s+(?:\w+\s+){0,8}?simd|GCC\s+ivdep)\b|\bvector_size\b")
_MOST_KERNELS = 3


class Approach(NamedTuple):
    """What a source mentions."""

    tensor_cores: bool
    async_copies: bool
    shared_memory: bool
    threads: bool
    """Of the host."""
    unrolled: bool
    prepares: bool
    """It lays out parameters anew before the first call."""
    vector: int
    """Elements of the widest vector type it names; 1 for none, 0 where it leaves them to a pragma."""
    kernels: int
    """`__global__` functions, 3 for more."""
    tile: int
    """The bit length of the product of its integer constants, which name tiles and blocks as a rule."""

    def distance(self, other: "Approach") -> int:
        """How many features differ."""
        return sum(ours != theirs for ours, theirs in zip(self, other, strict=True))


def approach_of(text: str) -> Approach:
    """The approach of a candidate's text."""
    code = _COMMENT.sub(" ", text)
    product = 1
    for found in _CONSTANTS.finditer(code):
        product *= max(1, int(found[2] or found[4]))
    return Approach(
        tensor_cores=bool(_TENSOR_CORES.search(code)),
        async_copies=bool(_ASYNC_COPIES.search(code)),
        shared_memory=bool(_SHARED.search(code)),
        threads=bool(_THREADS.search(code)),
        unrolled=bool(_UNROLLED.search(code)),
        prepares=bool(_PREPARES.search(code)),
        vector=_vector(code),
        kernels=min(_MOST_KERNELS, len(_KERNELS.findall(code))),
        tile=product.bit_length(),
    )


def _vector(code: str) -> int:
    named = next((width for width, names in _VECTORS if names.search(code)), None)
    if named is not None:
        return named
    return 0 if _SIMD_PRAGMA.search(code) else 1

"""What a function of PyTorch's core library does, by its mangled name: compute, or only allocate, move and dispatch.

NOT told apart: what the compiler has inlined; it counts as the function that it was inlined into.
"""

import re

# The kernels, and the libraries that are linked into it. A name may refer back to `at` (`NS8_6native`).
_KERNELS = re.compile(
    r"(?:at|_)6native|(?:at|_)3vec|_?mkl_|dnnl|gemm|cblas|xnn_|pytorch_q|nnp_|Sleef|onednn|ideep|conv|blas|\d+vml|fft",
    re.IGNORECASE,
)
_ARITHMETIC = re.compile(r"conv|gemm|gemv|norm|blas|dnnl|mkl_|Sleef", re.IGNORECASE)
_CONVERSIONS = frozenset({"Float16ToFloat", "FloatToFloat16", "Bfloat16ToFloat", "FloatToBfloat16"})
"""Functions of FBGEMM that copies to another type call, each in several variants."""
_PART = re.compile(
    r"(?:S[0-9A-Z]*|T\d*|A\d+|Dv\d+|fp\d*|E\d+)_"  # references back, arrays, vectors, parameters, lambdas
    r"|L[a-z]n?\d+E|E\d+E"  # values
    r"|(?P<standard>St)?(?P<length>[1-9]\d*)(?=[A-Za-z_])"
)
"""What numbers in a mangled name belong to; those that are none of the others are lengths of names that follow."""
_MOVES = frozenset(
    """
    alias allocate arange as cat chunk clone concat concatenate contiguous copy detach diagonal dstack empty expand fill
    flatten full hstack inferSqueezeGeometry item lift movedim narrow ones pad permute permuted reshape resize select
    setStrided slice split squeeze stack stride strided strides swapaxes t to transpose unbind unflatten unfold
    unsqueeze view vstack zero zeros
    """.split()  # noqa: SIM905  quoted, they are harder to read
)
_BESIDE = frozenset(
    """
    and bytes can check constant cpu deterministic dim dims direct dtype float fresh from get helper impl inputs int is
    kernel lazy like maybe meta native nd new non offset out output preserve reduced same sections serial shallow size
    sizes storage structured sym symint tensor tensorimpl type unsafe use will with
    """.split()  # noqa: SIM905  as above
)
"""Words that say how something is moved; any other word may name arithmetic: `add`, `reduce`, `masked`, `index`."""


def computes(function: str) -> bool:
    """Whether a function of PyTorch's, by its mangled name, does more than allocate, move and dispatch.

    A kernel that is not known for moving computes: all words of its name have to be those of plain operators
    (`tools.worker.watch`), so that neither the `cat` in `scatter_add` nor the name of a type excuses it.
    """
    if not _KERNELS.search(function):
        return False
    names = _names(function)
    if any(name.partition("_")[0] in _CONVERSIONS for name in names):
        return False
    return _ARITHMETIC.search(function) is not None or not any(map(_moves, names))


def _names(mangled: str) -> list[str]:
    """The names that a mangled name is made of, the standard library's left out; itself where it is not mangled."""
    if not mangled.startswith("_Z"):
        return [mangled]
    names, at = [], 0
    while (part := _PART.search(mangled, at)) is not None:
        at = part.end()
        if part["length"]:
            end = at + int(part["length"])
            if not part["standard"]:
                names.append(mangled[at:end])
            at = end
    return names


def _moves(name: str) -> bool:
    words = frozenset(name.split("_")) - {""}
    return not words.isdisjoint(_MOVES) and words <= _MOVES | _BESIDE

"""Which functions of libraries an extension calls that compute where no operator is recorded.

Read off the symbols that the compiler left for the linker, and the linker for the loader, not off the text: what is not
called is not there. NOT seen: functions that are looked up by name at run time.
"""

import re

from tools.worker.watch import PLAIN_OPERATORS

_UNDEFINED = re.compile(r"^[ \t]+[Uw] (?P<name>.+)$", re.MULTILINE)
_PAST_THE_DISPATCHER = re.compile(
    r"at::_ops::(?P<redispatched>\w+)::redispatch\(|at::(?:cpu|cuda|native)::(?:\w+::)*(?P<backend>\w+)\(.*at::Tensor"
)
_LIBRARIES = re.compile(
    r"(?:\w+ )?(?:at::cuda::blas::|at::native::cpublas::)|dnnl_|dnnl::|cblas_|mkl_"
    r"|[sd](?:gemm|gemv|axpy|dot|ger|scal)_$"
    r"|cu(?:blas|dnn|sparse|fft|solver)(?!\w*(?:Create|Destroy|Get|Set|Version))[A-Z_]"
)
_VARIANT = re.compile(r"(?:_symint)?(?:_outf|_out)?$")


def computing_symbols(listing: str) -> tuple[str, ...]:
    """The functions that compute past PyTorch's dispatcher, sorted, without their arguments.

    Args:
        listing: what `nm --undefined-only --demangle` prints, of objects or (with --dynamic) of a library.
    """
    # The loader's symbols carry versions.
    names = {found["name"].split("@", 1)[0] for found in _UNDEFINED.finditer(listing)}
    return tuple(sorted({name.split("(", 1)[0].removeprefix("void ") for name in names if _computes(name)}))


def _computes(name: str) -> bool:
    if _LIBRARIES.match(name):
        return True
    found = _PAST_THE_DISPATCHER.match(name)
    if found is None:
        return False
    operator = found["redispatched"] or found["backend"]
    return _VARIANT.sub("", operator) not in PLAIN_OPERATORS

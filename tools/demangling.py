"""C++ names as people write them, for names that a candidate may have made up.

A mangled name refers back to its own parts, so that one of 300 bytes can stand for gigabytes; the demanglers of GCC and
of binutils write them all out.
"""

import re

LONGEST = 1 << 20
"""Bytes that a name may have in plain; it takes a few milliseconds."""
LONGEST_MANGLED = 2000
"""Longer ones nest too deep for a demangler's stack."""
_BACK = re.compile(r"S[0-9A-Z]*_|T[0-9]*_")
_EXPANSION = re.compile(r"Dp|sp")
_PREFIX = re.compile(r"_Z(?:N[rVK]*[RO]?)?(?:St)?")
_SIZE = re.compile(r"[1-9]\d{0,3}")


def demangled(name: str) -> str:
    """A name in plain; as it is where it is not mangled, or would become too long."""
    # Reading a build's report needs `grows` only, and no PyTorch.
    import torch

    return name if grows(name) else torch._C._demangle(name)


def grows(name: str) -> bool:
    """Whether a mangled name could be too long in plain: each reference back may double it, and a pack is written out
    as often as the name has letters at most."""
    if len(name) > LONGEST_MANGLED:
        return True
    doubled = min(len(_BACK.findall(name)), LONGEST.bit_length())
    powers = min(len(_EXPANSION.findall(name)), 4)
    size: int = len(name) ** (1 + powers)
    return size << doubled > LONGEST


def nested_name(mangled: str) -> str:
    """The namespaces and the name that a mangled name begins with, without template arguments and parameters; the name
    as it is where it begins otherwise."""
    prefix = _PREFIX.match(mangled)
    parts = ["std"] if prefix is not None and prefix[0].endswith("St") else []
    at = 0 if prefix is None else prefix.end()
    while (size := _SIZE.match(mangled, at)) is not None:
        at = size.end() + int(size[0])
        parts.append(mangled[size.end() : at])
    return "::".join(parts) or mangled

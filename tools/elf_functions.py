"""Which function of a library an address lies in, by the library's own symbol table."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

_MAGIC = b"\x7fELF\x02\x01"
"""Of 64 bits, the lower byte first."""
# Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr and Elf64_Sym of elf(5).
_HEADER = np.dtype(
    [("ident", "V16"), ("kind", "<u2,<u2,<u4,<u8"), ("phoff", "<u8"), ("shoff", "<u8"), ("flags", "<u4"),
     ("ehsize", "<u2"), ("phentsize", "<u2"), ("phnum", "<u2"), ("shentsize", "<u2"), ("shnum", "<u2"),
     ("names", "<u2")]
)  # fmt: skip
_SEGMENT = np.dtype(
    [("type", "<u4"), ("flags", "<u4"), ("offset", "<u8"), ("vaddr", "<u8"), ("paddr", "<u8"), ("filesz", "<u8"),
     ("memsz", "<u8"), ("align", "<u8")]
)  # fmt: skip
_SECTION = np.dtype(
    [("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("addr", "<u8"), ("offset", "<u8"), ("size", "<u8"),
     ("link", "<u4"), ("info", "<u4"), ("addralign", "<u8"), ("entsize", "<u8")]
)  # fmt: skip
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_LOAD, _SYMTAB = 1, 2
_FUNCTION, _CHOSEN_AT_LOADING = 2, 10
_TYPE_BITS = 0xF
_LONGEST_NAME = 4096


class Functions:
    """The functions of one library; none where it was stripped of its symbol table, or is no such library."""

    def __init__(self, path: Path) -> None:
        self._file: Any = np.memmap(path, dtype=np.uint8, mode="r")
        self._segments = np.zeros(0, _SEGMENT)
        self._symbols = np.zeros(0, _SYMBOL)
        self._names = 0
        if bytes(self._file[: len(_MAGIC)]) == _MAGIC:
            header = self._table(0, 1, _HEADER)[0]
            self._segments = self._table(int(header["phoff"]), int(header["phnum"]), _SEGMENT)
            self._read_symbols(self._table(int(header["shoff"]), int(header["shnum"]), _SECTION))

    def _table(self, offset: int, count: int, kind: Any) -> Any:
        return self._file[offset : offset + count * kind.itemsize].view(kind)

    def _read_symbols(self, sections: Any) -> None:
        for section in sections[sections["type"] == _SYMTAB]:
            every = self._table(int(section["offset"]), int(section["size"]) // _SYMBOL.itemsize, _SYMBOL)
            kinds = every["info"] & _TYPE_BITS
            self._symbols = np.asarray(every[(kinds == _FUNCTION) | (kinds == _CHOSEN_AT_LOADING)])
            self._names = int(sections[section["link"]]["offset"])

    def __bool__(self) -> bool:
        return bool(len(self._symbols))

    def at(self, offset: int) -> str:
        """The mangled name of the function that lies at an offset in the file; empty where none does."""
        for segment in self._segments[self._segments["type"] == _LOAD]:
            start = int(segment["offset"])
            if start <= offset < start + int(segment["filesz"]):
                return self._named(offset - start + int(segment["vaddr"]))
        return ""

    def _named(self, address: int) -> str:
        begins, sizes = self._symbols["value"], self._symbols["size"]
        within = np.flatnonzero((begins <= address) & (address < begins + sizes))
        if not len(within):
            return ""
        place = self._names + int(self._symbols[within[0]]["name"])
        return bytes(self._file[place : place + _LONGEST_NAME]).split(b"\0", 1)[0].decode("utf-8", "replace")


@lru_cache(maxsize=8)
def functions_of(path: Path) -> Functions:
    """The functions of a library that does not change."""
    return Functions(path)

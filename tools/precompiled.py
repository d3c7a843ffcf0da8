"""A precompiled `torch/extension.h` for the host compiler, one for each set of flags it was asked for."""

import hashlib
import json
import os
import re
from pathlib import Path

from tools import process
from tools.cache import cache_root, published
from tools.confinement import for_compiler
from tools.folders import remove_folder
from tools.toolchain import Toolchain
from tools.usage import compiler_budget

COMPILE_TIMEOUT_S = 300.0
KEPT = 6
"""How many precompiled headers stay on disk (each takes some 200 to 500 MB); the least recently used ones go."""


# A header is worth its half minute only where others will ask for the same flags; and files and programs that flags
# name may be others tomorrow. -Wa, -Wl and -Wp hand flags to other programs.
_ORDINARY = re.compile(r"-(O\w*|g\d?|w|W(?![alp],)[\w=-]*|f(?!plugin)[\w=.-]+|m[\w=.-]+|[DUI].+|std=[\w+]+|pthread)")


class _UnusableFlagsError(Exception):
    """The header does not compile with the flags; leaving the block by an exception is what publishes nothing."""


def precompiled_prelude(toolchain: Toolchain, flags: list[str]) -> Path | None:
    """The header to give to `-include`, precompiled for exactly these flags; made on first use.

    None where it cannot be had: a flag is out of the ordinary, the compiler is Clang (the reuse relies on GCC's rules),
    the flags do not compile, or there is no room on the disk.
    """
    if not all(_ORDINARY.fullmatch(flag) for flag in flags if flag != "-isystem" and not flag.startswith("/")):
        return None
    if "clang" in f"{Path(toolchain.host_compiler).name} {toolchain.host_version}".lower():
        return None
    identity = [toolchain.host_compiler, toolchain.host_version, toolchain.torch_version, toolchain.cuda_version, flags]
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]
    root = cache_root() / "precompiled"
    folder = root / key
    prelude = folder / "prelude.h"
    if not (folder / "prelude.h.gch").is_file():
        try:
            with published(folder) as work:
                (work / "prelude.h").write_text("#include <torch/extension.h>\n")
                # Compiled under its final path's name: GCC finds the .gch beside the header that -include names.
                argv = [toolchain.host_compiler, *flags, "-x", "c++-header", "prelude.h", "-o", "prelude.h.gch"]
                # The flags are a candidate's, and some make the compiler run other programs.
                confined = for_compiler(work, read=toolchain.folders).command(argv)
                done = process.run(confined, cwd=work, timeout_s=COMPILE_TIMEOUT_S, budget=compiler_budget())
                if done.returncode:
                    raise _UnusableFlagsError
        except (_UnusableFlagsError, OSError):
            return None
        finally:
            _forget_the_oldest(root)
    if not prelude.is_file():
        return None  # Another process has dropped it meanwhile.
    os.utime(folder)
    return prelude


def _forget_the_oldest(root: Path) -> None:
    entries = [path for path in root.glob("*") if path.is_dir() and not path.name.startswith(".")]
    entries.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for stale in entries[KEPT:]:
        remove_folder(stale)

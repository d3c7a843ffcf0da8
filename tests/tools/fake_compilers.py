"""Compilers that only write down how they were called, for tests of what is asked of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tools.toolchain import Toolchain

# Writes the -o file as a compiler does, or fails with a message where a flag asks for it.
_SCRIPT = """#!{python}
import json, os, shutil, sys
from pathlib import Path
folder = Path({folder!r})
with (folder / "calls.jsonl").open("a") as log:
    log.write(json.dumps([{name!r}, *sys.argv[1:]]) + "\\n")
if "-fail" in sys.argv:
    print("candidate.py(1): error: as asked")
    sys.exit(1)
if "-o" in sys.argv:
    shutil.copy(folder / "empty.so", sys.argv[sys.argv.index("-o") + 1])
"""


class FakeCompilers:
    """A toolchain whose compilers write down their arguments."""

    def __init__(self, folder: Path, architecture: str = "9.0a") -> None:
        self.folder = folder
        self.cuda_home = folder / "cuda"
        # The symbols of what is built are listed, so it must be an object.
        empty = ["g++", "-shared", "-x", "c++", os.devnull, "-o", str(folder / "empty.so")]
        subprocess.run(empty, check=True, timeout=60)
        for name, path in (("g++", folder / "g++"), ("nvcc", self.cuda_home / "bin" / "nvcc")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder), name=name))
            path.chmod(0o700)
        self.toolchain = Toolchain(
            host_compiler=str(folder / "g++"),
            host_version="g++ (fake) 1.0",
            torch_version="2.14.0",
            torch_root=folder / "torch",
            cuda_home=self.cuda_home,
            cuda_version="13.0",
            architecture=architecture,
        )

    def calls(self, name: str) -> list[list[str]]:
        """The arguments of every call of a compiler so far."""
        log = self.folder / "calls.jsonl"
        lines = log.read_text().splitlines() if log.is_file() else []
        return [call[1:] for call in map(json.loads, lines) if call[0] == name]

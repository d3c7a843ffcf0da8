"""`kernelwright serve` with scripted tools that also write to standard output; run as a program by the tests.

python serve_scripted.py OUT [http]
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from scripted import ScriptedTools, briefing

from agent.serving import bench, command
from agent.workplace import Workplace
from tasks.loader import Task
from tasks.spec import Target
from tools.results import ToolReply

HANGS = "hang"
"""The text of a candidate whose compilation never ends."""


class LoudTools(ScriptedTools):
    """Every call writes to standard output in three ways, as a compiler or a candidate may."""

    def call(self, name: str, arguments: str) -> ToolReply:
        print('{"jsonrpc": "2.0", "id": 1, "result": "printed"}', flush=True)
        os.write(1, b"written\n")
        subprocess.run([sys.executable, "-c", "print('of a child')"], check=True)
        while HANGS in arguments:
            time.sleep(1)
        return super().call(name, arguments)


@contextmanager
def workplace(task: Task, target: Target, parallel: int, note: Callable[[str], None]) -> Iterator[Workplace]:
    del task, parallel, note
    yield Workplace(briefing(target), LoudTools, lambda: None)


if __name__ == "__main__":
    address = ("127.0.0.1", 0) if sys.argv[2:] == ["http"] else None
    with patch.object(bench, "workplace", workplace):
        command.serve_tools("causal_conv", target=Target.CPU, out=Path(sys.argv[1]), address=address, require=None)

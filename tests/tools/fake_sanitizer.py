"""A compute-sanitizer that runs the program it is given and then writes a report that was laid ready for its tool."""

import json
import sys
from pathlib import Path

# Every flag that is given to it takes one value; the program is what follows. As the true one of CUDA 13.5 (seen with
# strace) it opens its log first, and the program inherits that. Without a report it leaves the log empty.
_SCRIPT = """#!{python}
import json, os, subprocess, sys
from pathlib import Path
folder = Path({folder!r})
flags, program = {{}}, sys.argv[1:]
while program and program[0].startswith("--"):
    flags[program[0]] = program[1]
    program = program[2:]
caching = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING")
with (folder / "calls.jsonl").open("a") as log:
    log.write(json.dumps({{"flags": flags, "caching": caching}}) + "\\n")
{before}
log = os.open(flags["--log-file"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.set_inheritable(log, True)
ended = subprocess.run(program, close_fds=False)
with (folder / "exit_codes").open("a") as codes:
    codes.write(f"{{ended.returncode}}\\n")
report = folder / flags["--tool"]
if report.is_file():
    os.write(log, report.read_bytes())
"""


class FakeSanitizer:
    """An executable file at `path`; `before` is Python that it executes before it starts the program."""

    def __init__(self, folder: Path, reports: dict[str, str], before: str = "") -> None:
        self.folder = folder
        self.path = folder / "compute-sanitizer"
        self.path.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder), before=before))
        self.path.chmod(0o700)
        for tool, report in reports.items():
            (folder / tool).write_text(report)

    def flags(self, tool: str) -> dict[str, str]:
        """The flags of the one call for a tool, and the variable that concerns PyTorch's allocator as `caching`."""
        calls = [json.loads(line) for line in (self.folder / "calls.jsonl").read_text().splitlines()]
        (call,) = [call for call in calls if call["flags"]["--tool"] == tool]
        return {**call["flags"], "caching": call["caching"]}

    def exit_codes(self) -> list[int]:
        """How the programs ended that it ran."""
        return [int(line) for line in (self.folder / "exit_codes").read_text().splitlines()]

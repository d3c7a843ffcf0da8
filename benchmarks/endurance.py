"""What thousands of evaluations leave behind: memory of the pool's processes, descriptors, files, GPU memory.

    python benchmarks/endurance.py COUNT                             the small problem in `small/`, on the host
    python benchmarks/endurance.py COUNT TASK TARGET FILE ...

The files are evaluated by turns, each time with another comment at the end, so that every candidate is a new one and
its build is in the cache. What the pool takes is looked at twenty times, while it works, and compared: from a fifth of
the evaluations on nothing should grow. At the end nothing of it should be left. Exits with 1 where that is not so.
"""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tasks.loader import find_task
from tasks.record import Record
from tasks.spec import Target
from tools.jobs import Job, JobTask
from tools.local_site import local_site
from tools.pool import Pool
from tools.process import children

LOOKS = 20
SETTLED_SHARE = 0.2
"""After so large a part of the evaluations judges are warm, and what is cached is cached."""
ALLOWED_GROWTH = 1.05
_SMALL = Path(__file__).parent / "small"


class Look(Record):
    """What the pool takes at one moment; workers of candidates, which come and go, are not counted."""

    done: int
    resident_mib: dict[str, float]
    """By role: the caller, and the builders and lanes with their fork servers, each as the largest of its kind."""
    descriptors: int
    """Of all these processes."""
    files: int
    """In the temporary folder."""
    shared_memory: int
    """Entries of /dev/shm."""
    gpu_mib: int | None


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _descendants(child)


def _role(pid: int) -> str | None:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        forked = Path(f"/proc/{parent}/cmdline").read_bytes().decode(errors="replace").split("\0") == arguments
    except OSError:
        return None
    if any(part.endswith("fork_server.py") for part in arguments):
        # A worker has its fork server's arguments.
        return None if forked else "fork server"
    return next((role for role in ("builder", "lane") if "tools.pool_process" in arguments and role in arguments), None)


def _resident_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


def _gpu_mib() -> int | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    argv = [program, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return sum(map(int, done.stdout.split())) if done.returncode == 0 else None


def _shared_memory() -> set[str]:
    return {str(path) for path in Path("/dev/shm").iterdir()}


def _look(done: int, home: Path) -> Look:
    resident = {"caller": _resident_mib(os.getpid())}
    counted = [os.getpid()]
    for pid in _descendants(os.getpid()):
        if role := _role(pid):
            resident[role] = max(resident.get(role, 0.0), _resident_mib(pid))
            counted.append(pid)
    descriptors = 0
    for pid in counted:
        try:
            descriptors += sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
    return Look(
        done=done,
        resident_mib={role: round(size, 1) for role, size in resident.items()},
        descriptors=descriptors,
        files=sum(1 for _ in home.rglob("*")),
        shared_memory=len(_shared_memory()),
        gpu_mib=_gpu_mib(),
    )


def _jobs(count: int, task: JobTask, target: Target, files: list[Path]) -> Iterator[Job]:
    texts = itertools.cycle([file.read_text(encoding="utf-8") for file in files])
    for number, text in enumerate(itertools.islice(texts, count)):
        yield Job(task=task, target=target, text=f"{text}\n# {number}\n")


def _grown(looks: list[Look]) -> list[str]:
    """What is larger at the end than after the first part, in words."""
    settled = [look for look in looks if look.done >= SETTLED_SHARE * looks[-1].done]
    first, last = settled[0], settled[-1]
    found = [
        f"{role}: {first.resident_mib[role]} to {size} MiB"
        for role, size in last.resident_mib.items()
        if size > ALLOWED_GROWTH * first.resident_mib.get(role, size)
    ]
    # Those of one worker more or less are no growth.
    half = len(settled) // 2
    for name in ("descriptors", "files", "shared_memory", "gpu_mib"):
        early, late = ([getattr(look, name) or 0 for look in part] for part in (settled[:half], settled[half:]))
        if min(late) > max(early):
            found.append(f"{name}: {max(early)} to {min(late)}")
    return found


def main(count: int, task: str, target: Target, files: list[Path]) -> int:
    """Evaluate, look, and tell; returns the exit code."""
    verdicts: Counter[str] = Counter()
    looks: list[Look] = []
    with tempfile.TemporaryDirectory(prefix="endurance-") as name:
        home = Path(name)
        tempfile.tempdir = name
        shared_before, started = _shared_memory(), time.monotonic()
        with Pool([local_site(target, lambda _: None)]) as pool:
            for found in pool.evaluate(_jobs(count, JobTask.of(find_task(task)), target, files)):
                verdicts[found.evaluation.verdict] += 1
                if verdicts.total() % max(1, count // LOOKS) == 0:
                    looks.append(_look(verdicts.total(), home))
                    print(looks[-1].model_dump_json(), flush=True)
        tempfile.tempdir = None
        left = [str(path) for path in home.iterdir() if path.name.startswith("kernelwright-")]
        left += [f"process {pid}" for pid in _descendants(os.getpid())]
        left += sorted(_shared_memory() - shared_before)
    told = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())
    print(f"{count} evaluations in {time.monotonic() - started:.0f} s: {told}")
    grown = _grown(looks)
    print("grown:", "; ".join(grown) or "nothing")
    print("left:", "; ".join(left) or "nothing")
    return int(bool(grown or left))


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    match sys.argv[1:]:
        case [number]:
            small = [_SMALL / f"{each}.py" for each in (*4 * ["wrong"], "right")]
            sys.exit(main(int(number), str(_SMALL / "problem.py"), Target.CPU, small))
        case [number, task_name, target_name, *named] if named:
            sys.exit(main(int(number), task_name, Target(target_name), [Path(file) for file in named]))
        case _:
            sys.exit(__doc__)

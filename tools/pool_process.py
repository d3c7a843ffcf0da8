"""One process of an evaluation pool: a builder or a lane, with a warm judge for each task. Ends when the pool hangs up.

Run as `python -m tools.pool_process ROLE FD JUDGE`: FD is a Unix stream socket to the pool, which sends an `Ask` a line
and is answered with `Progress` lines and one answer; JUDGE is `MODULE:CLASS`. All files go below TMPDIR, a folder of
this process's own. Oracle and baselines are reused across candidates of a task, never by another process.
"""

import contextlib
import hashlib
import importlib
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, NamedTuple, NoReturn

from tasks.errors import HarnessError, KernelwrightError
from tasks.loader import Task, find_task
from tasks.spec import Target
from tools.folders import remove_folder
from tools.jobs import (
    KEPT_TASKS,
    Answer,
    Ask,
    BriefingAnswer,
    BuildAnswer,
    EvaluationAnswer,
    Job,
    JobTask,
    Progress,
    Ready,
    Role,
    ToolAnswer,
)
from tools.light_kit import light_kit
from tools.members import JUDGE
from tools.process import children, end_tree
from tools.results import Evaluation, Fault, ToolResult
from tools.server_process import Processes
from tools.servers import Servers
from tools.toolchain import find_toolchain
from tools.verdict import Verdict

if TYPE_CHECKING:
    from tools.judge import Judge

_LOOK_EVERY_S = 0.1


class _Kept(NamedTuple):
    judge: "Judge"
    processes: Processes | None


class Judges:
    """Warm judges, the least recently used of which make room for new ones."""

    def __init__(self, make: "type[Judge]", servers: Servers | None, progress: Callable[[str], None]) -> None:
        """`servers` are for all of them, and closed with them; None where judges need none."""
        self._make = make
        self._servers = servers
        self._progress = progress
        self._kept: OrderedDict[tuple[object, ...], _Kept] = OrderedDict()

    def of(self, job: Job) -> "Judge":
        """The judge of a job's task."""
        key = _key(job)
        if key not in self._kept:
            while len(self._kept) >= KEPT_TASKS:
                self._end(next(iter(self._kept)))
            processes = None if self._servers is None else self._servers.of(job.target)
            judge = self._make(
                _task(job.task),
                job.target,
                allow_library=job.allow_library,
                fixed_candidates=job.fixed_candidates,
                processes=processes,
                progress=self._progress,
            )
            self._kept[key] = _Kept(judge, processes)
        self._kept.move_to_end(key)
        judge = self._kept[key].judge
        judge.idle_neighbours = sum(other.warm_workers for other, _ in self._kept.values() if other is not judge)
        return judge

    def forget(self, job: Job) -> None:
        """End a job's judge; the next job of the task gets a new one, with a new fork server."""
        key = _key(job)
        if self._servers is not None:
            self._servers.replace(self._kept[key].processes)
        self._end(key)

    def _end(self, key: tuple[object, ...]) -> None:
        self._kept.pop(key).judge.close()
        if self._servers is not None:
            self._servers.end_unused([processes for _, processes in self._kept.values()])

    def end_compilers(self) -> None:
        """End compilers as long as there are any, for ever: a thread that waited for another one may start its own."""
        servers = {judge.server_pid for judge, _ in self._kept.values()}
        servers |= set() if self._servers is None else self._servers.pids
        while True:
            for child in children(os.getpid()):
                # What shares our session tidies up; fork servers sweep up after their workers.
                with contextlib.suppress(ProcessLookupError):
                    if child not in servers and os.getsid(child) != os.getsid(0):
                        end_tree(child)
            time.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        """End all of them."""
        try:
            while self._kept:
                self._kept.popitem()[1].judge.close()
        finally:
            if self._servers is not None:
                self._servers.close()


def _key(job: Job) -> tuple[object, ...]:
    return job.task, job.target, job.allow_library, job.fixed_candidates


def _task(given: JobTask) -> Task:
    if given.source is None:
        return find_task(given.name)
    folder = Path(tempfile.gettempdir()) / hashlib.sha256(given.source.encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    path = folder / given.file
    path.write_text(given.source, encoding="utf-8")
    return replace(find_task(path), mode=given.mode)


def _answer(role: Role, ask: Ask, judges: Judges) -> Answer:
    job = ask.job
    judge = judges.of(job)
    if ask.only_get_ready:
        # What fails here fails again when it is needed, and is told then. An error that is none of ours ends this
        # process, and the pool starts another: a GPU's context may be of no use any more.
        with contextlib.suppress(KernelwrightError):
            judge.get_ready()
        return Ready()
    if role == "builder" and job.question != "disassemble":
        build = judge.compile(job.candidate)
        if build.status == "fault" and build.verdict is Verdict.HARNESS_ERROR:
            judges.forget(job)
        return BuildAnswer(result=build)
    if job.question == "briefing":
        return BriefingAnswer(result=judge.briefing())
    before_s = judge.leased_s
    if job.question == "evaluate":
        result: ToolResult = judge.evaluate(job.candidate, strict=job.strict, build=ask.build)
    else:
        result = _asked(judge, job)
    # Its fork server or its baseline may be what failed.
    if isinstance(result, Evaluation | Fault) and result.verdict is Verdict.HARNESS_ERROR:
        judges.forget(job)
    if isinstance(result, Evaluation):
        return EvaluationAnswer(result=result, device_seconds=judge.leased_s - before_s)
    return ToolAnswer(result=result, device_seconds=judge.leased_s - before_s)


def _asked(judge: "Judge", job: Job) -> ToolResult:
    """What one tool asks."""
    if job.question == "verify":
        return judge.verify(job.candidate)
    if job.question == "benchmark":
        return judge.benchmark(job.candidate)
    if job.question == "profile":
        return judge.profile(job.candidate)
    if job.question == "sanitize":
        return judge.sanitize(job.candidate)
    if job.question == "disassemble":
        return judge.disassemble(job.candidate, job.function)
    raise HarnessError(f"a lane is not asked to {job.question}")


def _first_ask(lines: IO[bytes]) -> Ask | None:
    """What the pool starts a process for; None where it has hung up already."""
    with contextlib.suppress(ConnectionError):
        if line := lines.readline():
            return Ask.model_validate_json(line)
    return None


def _receive(lines: IO[bytes], asks: "queue.SimpleQueue[Ask]") -> None:
    """Take what the pool sends; when it hangs up, end this process whatever it is doing."""
    with contextlib.suppress(ConnectionError):
        for line in lines:
            asks.put(Ask.model_validate_json(line))
    os.kill(os.getpid(), signal.SIGTERM)


def _prepare_builds() -> None:
    """Have made what all builds need. What fails here fails again in the first build, and is told then."""
    with contextlib.suppress(KernelwrightError):
        kit = light_kit(find_toolchain())
        if kit is not None:
            kit.hold.close()


def serve(
    role: Role,
    pool: socket.socket,
    lines: IO[bytes],
    first: Ask,
    judge_class: "type[Judge]",
    servers: Servers | None,
) -> None:
    """Answer the pool, from its first question on, until it hangs up; the servers are closed then."""
    asks: queue.SimpleQueue[Ask] = queue.SimpleQueue()
    asks.put(first)

    def say(reply: Answer | Progress) -> None:
        pool.sendall(reply.model_dump_json().encode() + b"\n")

    judges = Judges(judge_class, servers, lambda message: say(Progress(message=message)))

    def leave(_signal: int, _frame: FrameType | None) -> NoReturn:
        """Unwind, so that judges end what they have started."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=judges.end_compilers, daemon=True).start()
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, leave)
    threading.Thread(target=_receive, args=(lines, asks), daemon=True).start()
    try:
        while True:
            say(_answer(role, asks.get(), judges))
    except (BrokenPipeError, ConnectionError):
        # The pool has hung up.
        return
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        judges.close()


def main() -> None:
    """Serve the pool, then leave nothing behind."""
    # The pool ends its processes itself, also after Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    role: Role = "lane" if sys.argv[1] == "lane" else "builder"
    module, name = sys.argv[3].split(":")
    pool = socket.socket(fileno=int(sys.argv[2]))
    # Never closed: a thread reads from it to the end, and closing would wait for that.
    lines = pool.makefile("rb")
    # What stands in for a judge in a test forks nothing.
    servers = Servers(role) if sys.argv[3] == JUDGE else None
    try:
        first = _first_ask(lines)
        if first is None:
            return
        # Beside the import of the judge, and with it PyTorch, which takes seconds. On the host builds must not run
        # beside a measurement.
        if role == "builder" and first.job.target is Target.CUDA:
            threading.Thread(target=_prepare_builds, daemon=True).start()
        if servers is not None:
            # They import PyTorch, too.
            servers.start(first.job.target)
        serve(role, pool, lines, first, getattr(importlib.import_module(module), name), servers)
    finally:
        if servers is not None:
            servers.close()
        remove_folder(Path(tempfile.gettempdir()))


if __name__ == "__main__":
    main()

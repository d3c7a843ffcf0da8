"""The pool's end of its processes: starts them, asks them, and ends them with all that they have started."""

import contextlib
import fcntl
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from tools.folders import read_regular, remove_folder
from tools.jobs import REPLY, Answer, Ask, Ended, Progress, Role
from tools.process import end_tree

JUDGE = "tools.judge:Judge"
"""The class whose objects answer; tests put another one in its place."""
_ROOT = Path(__file__).resolve().parents[1]
_GRACE_S = 5.0
"""How long a process may take to end its judges before it is killed."""
_PREFIX, _LOG = "kernelwright-pool-", "log"
_LOG_TAIL_BYTES = 2000
_STALE_S = 60.0
"""A folder this old whose log nobody holds belongs to a process that has ended."""


class MemberEndedError(Exception):
    """A process of the pool ended in place of answering."""


class SiteLostError(Exception):
    """A machine is gone, with all its processes."""


class Member(Protocol):
    """One process of a pool, a builder or a lane."""

    def ask(self, ask: Ask) -> Answer:
        """Have a job built, or evaluated; raises MemberEndedError where the process ends meanwhile."""
        ...

    def close(self) -> None:
        """End the process, also while another thread waits for its answer."""
        ...


class MemberProcess:
    """A member on this machine."""

    def __init__(
        self,
        role: Role,
        progress: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
        judge: str = JUDGE,
        niceness: int = 0,
    ) -> None:
        """`environment` replaces this process's; `judge` is the `MODULE:CLASS` of the judges."""
        self._progress = progress
        remove_stale_folders(Path(tempfile.gettempdir()))
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{role}-"))
        self._log = self._folder / _LOG
        inherited = os.environ if environment is None else environment
        path = os.pathsep.join(filter(None, (str(_ROOT), inherited.get("PYTHONPATH"))))
        ours, theirs = socket.socketpair()
        with theirs, self._log.open("wb") as log:
            # Held by the process, whose standard output this is, until its end.
            fcntl.flock(log, fcntl.LOCK_EX)
            self._process = subprocess.Popen(
                # -P: modules of the folder that the user is in must not hide installed ones.
                [
                    *("nice", "-n", str(niceness)),
                    *(sys.executable, "-P", "-m", "tools.pool_process", role, str(theirs.fileno()), judge),
                ],
                env={"OMP_WAIT_POLICY": "passive", **inherited, "PYTHONPATH": path, "TMPDIR": str(self._folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket = ours
        self._received = bytearray()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def ask(self, ask: Ask) -> Answer:
        """As of `Member`."""
        try:
            self._socket.sendall(ask.model_dump_json().encode() + b"\n")
            while (line := self._line()) is not None:
                reply = REPLY.validate_json(line)
                if isinstance(reply, Progress):
                    self._progress(reply.message)
                elif not isinstance(reply, Ended):
                    return reply
        except OSError:
            # It has hung up, or we have: `close` was called meanwhile.
            pass
        raise MemberEndedError(self._last_words())

    def _line(self) -> bytes | None:
        """The next line; None at the end of the stream."""
        while (end := self._received.find(b"\n")) < 0:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                return None
            self._received += chunk
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        code = self._process.poll()
        how = "hung up" if code is None else f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
        try:
            said = read_regular(self._log, last=_LOG_TAIL_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            said = ""
        return how + (f"; it said last: {said}" if said else "")

    def close(self) -> None:
        """As of `Member`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            end_tree(self._process.pid)
            self._process.wait()
        self._socket.close()
        remove_folder(self._folder)


def remove_stale_folders(parent: Path) -> None:
    """Remove what processes of pools have left that were killed together with their pool, so that nobody tidied up."""
    for folder in parent.glob(f"{_PREFIX}*"):
        # What is gone, or in use, is none of our business; nor is what another user has put there.
        with contextlib.suppress(OSError):
            told = folder.lstat()
            if stat.S_ISDIR(told.st_mode) and told.st_uid == os.getuid() and time.time() - told.st_ctime > _STALE_S:
                with (folder / _LOG).open("rb") as log:
                    fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_folder(folder)

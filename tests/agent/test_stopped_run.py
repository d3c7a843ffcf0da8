"""A run of several rollouts at once that is stopped by a signal, wherever its rollouts are."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runs.events import Ended, EndReason, ToolReturned
from runs.find import list_runs

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tools"))

from processes import ROOT, descendants, running, within  # noqa: E402


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(("mode", "busy"), [("build", 3), ("measure", 3), ("model", 0)])
def test_all_rollouts_end_with_whole_transcripts_and_nothing_stays(
    tmp_path: Path, sent: signal.Signals, mode: str, busy: int
) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    home.mkdir()
    out.mkdir()
    environment = {
        **os.environ,
        "TMPDIR": str(home),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE.parent / "tools"))),
        "KERNELWRIGHT_LEASES": str(tmp_path / "leases"),
    }
    argv = [sys.executable, str(HERE / "stopped_run.py"), str(out), mode]
    with subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as caller:
        try:
            # All three are in their third turn.
            assert within(120, lambda: len(list(out.glob("long-*"))) == 3 or caller.poll() is not None)
            assert caller.poll() is None, caller.communicate()[0].decode()
            started = descendants(caller.pid)
            # Processes start as they are needed: one rollout may use the builder and lane that another is done with.
            assert max(busy, 1) + 1 <= len(started) <= 6
            caller.send_signal(sent)
            output = caller.communicate(timeout=60)[0].decode()
        finally:
            # Who fails here does not wait for what takes long.
            caller.kill()
    assert within(30, lambda: not any(map(running, started)))
    (found,) = list_runs(out)
    assert found.rollouts() == ("rollout-1", "rollout-2", "rollout-3")
    for name in found.rollouts():
        events = found.events(name)
        assert [event.sequence for event in events] == list(range(len(events)))
        # Two turns were finished.
        assert len([event for event in events if isinstance(event, ToolReturned) and event.turn <= 2]) == 4
        if sent is not signal.SIGKILL:
            assert isinstance(events[-1], Ended) and events[-1].reason is EndReason.INTERRUPTED
            assert f"{name}  ended: interrupted" in output
    if sent is not signal.SIGKILL:
        assert caller.returncode == 130
        assert within(10, lambda: not list(home.glob("kernelwright-*")))
        assert "no further rollout is started: the run was interrupted" in output

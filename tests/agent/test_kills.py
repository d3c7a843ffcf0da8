"""A rollout that is killed at any point and resumed tells the same as one that was never killed."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_killed_at_any_point_a_rollout_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """No turn is lost, none is asked for twice once it is on the disk, each call has one result."""
    # In a process of its own, because it forks, and other tests have left threads in this one.
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, str(folder / "kill_points.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder.parents[1]), str(folder)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failures"] == []
    assert found["boundaries"] > 200
    assert found["kills"] > found["boundaries"]

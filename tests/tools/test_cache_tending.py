"""The cache stays within its bound, what goes is what was not used for longest, and what is used stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import ROOT, within

from tools import cache_tending
from tools.cache import IN_USE, Hold, hold, made_and_held, published, workplace
from tools.cache_tending import clear, drop, entries, leftovers, tend, tend_now_and_then

MB = 1 << 20
_OTHER = """
import sys, time
from pathlib import Path
from tools.cache import hold, workplace
from tools.cache_tending import drop
what, path = sys.argv[1], Path(sys.argv[2])
"""
HOLDER = f"{_OTHER}\nkept = hold(path)\nprint('ready', flush=True)\ntime.sleep(60)\n"
WORKER = f"{_OTHER}\nwith workplace(path) as work:\n    print(work, flush=True)\n    time.sleep(60)\n"
CHURN = f"""{_OTHER}
from tools.cache import published
end = time.monotonic() + 3
wrong = lookups = 0
while time.monotonic() < end:
    entry = path / f"key{{lookups % 3}}"
    if what == "drop":
        drop(entry)
        continue
    kept = hold(entry)
    if kept is None:
        with published(entry) as work:
            (work / "library").write_text(entry.name)
    else:
        wrong += (entry / "library").read_text() != entry.name
        kept.close()
    lookups += 1
print(wrong, lookups)
"""


def started(code: str, what: str, path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", code, what, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def ended(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def entry_of(path: Path, size_bytes: int, last_used: float) -> Path:
    """An entry of a size, last used so many seconds after the beginning of time."""
    with published(path) as work:
        (work / "library").write_bytes(os.urandom(size_bytes))
    os.utime(path, (last_used, last_used))
    return path


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    return [entry_of(tmp_path / "builds" / name, MB, 1000.0 + age) for age, name in enumerate("abc")]


def there(paths: list[Path]) -> str:
    return "".join(path.name for path in paths if path.exists())


def test_within_the_bound_nothing_goes(tmp_path: Path, three: list[Path]) -> None:
    assert tend(tmp_path, 4 * MB).entries == 0
    assert there(three) == "abc"


def test_the_least_recently_used_go_first_and_no_more_than_needed(tmp_path: Path, three: list[Path]) -> None:
    header = entry_of(tmp_path / "precompiled" / "h", MB, 1000.5)
    dropped = tend(tmp_path, 5 * MB // 2)
    assert (dropped.entries, there([*three, header])) == (2, "bc")
    assert 2 * MB <= dropped.size_bytes < 2 * MB + 20_000
    assert sum(entry.size_bytes for entry in entries(tmp_path)) <= 5 * MB // 2
    assert sorted(path.name for path in (tmp_path / "builds").iterdir()) == ["b", "c"], "nothing else is left of them"


def test_using_an_entry_makes_it_the_last_to_go(tmp_path: Path, three: list[Path]) -> None:
    used = hold(three[0])
    assert used is not None
    used.close()
    tend(tmp_path, 3 * MB // 2)
    assert there(three) == "a"


def test_what_is_held_stays_and_goes_when_it_is_let_go(tmp_path: Path, three: list[Path]) -> None:
    """A library that vanished between look-up and loading would be told to the candidate as its own failure."""
    held = hold(three[0])
    assert held is not None
    assert not drop(three[0])
    assert clear(tmp_path).entries == 2
    assert there(three) == "a"
    held.close()
    assert clear(tmp_path).entries == 1
    assert there(three) == ""


def test_a_forgotten_hold_lets_go(three: list[Path]) -> None:
    held: Hold | None = hold(three[0])
    assert not drop(three[0])
    del held
    assert drop(three[0])


def test_what_another_process_holds_stays_until_that_is_killed(tmp_path: Path, three: list[Path]) -> None:
    other = started(HOLDER, "", three[1])
    try:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        tend(tmp_path, 0)
        assert there(three) == "b"
        assert [entry.in_use for entry in entries(tmp_path)] == [True]
    finally:
        ended(other)
    assert [entry.in_use for entry in entries(tmp_path)] == [False]
    tend(tmp_path, 0)
    assert there(three) == ""


def test_an_entry_that_was_dropped_is_not_held(three: list[Path]) -> None:
    assert drop(three[0])
    assert hold(three[0]) is None
    assert not drop(three[0]), "and not dropped twice"


def test_holding_and_dropping_at_once_never_shows_half_an_entry(tmp_path: Path) -> None:
    """Two processes use and make three entries, two others drop them all the time."""
    others = [started(CHURN, what, tmp_path / "builds") for what in ("use", "use", "drop", "drop")]
    told = [process.communicate(timeout=60)[0].split() for process in others]
    assert [process.returncode for process in others] == [0, 0, 0, 0]
    for wrong, lookups in told[:2]:
        assert int(wrong) == 0
        assert int(lookups) > 20
    clear(tmp_path)
    assert list((tmp_path / "builds").iterdir()) == []


def test_folders_of_dead_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    dead, living = started(WORKER, "", builds), started(WORKER, "", builds)
    try:
        assert dead.stdout is not None and living.stdout is not None
        left, used = (Path(stream.readline().strip()).parent for stream in (dead.stdout, living.stdout))
        for folder in (left, used):
            os.utime(folder, (1000.0, 1000.0))
            os.utime(folder / IN_USE, (1000.0, 1000.0))
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert within(5, lambda: leftovers(tmp_path) == [left])
        tend(tmp_path, 10 * MB)
        assert not left.exists()
        assert (used / "work").is_dir(), "old, but its process lives"
    finally:
        ended(dead)
        ended(living)


def test_a_folder_that_was_not_locked_yet_is_given_time(tmp_path: Path) -> None:
    new, old = tmp_path / "builds" / ".working-new", tmp_path / "builds" / ".building-old"
    for folder in (new, old):
        folder.mkdir(parents=True)
    os.utime(old, (1000.0, 1000.0))
    tend(tmp_path, MB)
    assert (new.exists(), old.exists()) == (True, False)


def test_a_process_killed_while_it_drops_leaves_what_the_next_tending_takes(tmp_path: Path, three: list[Path]) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from tools import cache\n"
        "cache.remove_folder = lambda path: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from tools.cache_tending import drop; drop(Path(sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(three[0])], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert there(three) == "bc"
    assert len(leftovers(tmp_path)) == 1
    tend(tmp_path, 10 * MB)
    assert sorted(path.name for path in (tmp_path / "builds").iterdir()) == ["b", "c"]


def test_a_workplace_taken_away_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def slow(*, prefix: str, dir: Path) -> str:
        made.append(dir / f"{prefix}{len(made)}")
        made[-1].mkdir()
        if len(made) == 1:
            os.utime(made[-1], (1000.0, 1000.0))
            tend(tmp_path, MB)
        return str(made[-1])

    monkeypatch.setattr("tools.cache.tempfile.mkdtemp", slow)
    with workplace(tmp_path / "builds") as work:
        assert work.parent != made[0]
        assert work.is_dir() and not made[0].exists()


def test_a_header_that_a_compiler_may_be_reading_stays(tmp_path: Path) -> None:
    """It is given to compilers without being held; they are stopped after five minutes."""
    path = entry_of(tmp_path / "precompiled" / "h", MB, time.time() - 400)
    tend(tmp_path, 0)
    clear(tmp_path)
    assert path.exists()
    os.utime(path, (time.time() - 700,) * 2)
    assert clear(tmp_path).entries == 1


def test_pytorchs_own_caches_count_and_go_whole(tmp_path: Path) -> None:
    for name in ("inductor", "triton"):
        made_and_held(tmp_path / name).close()
        (tmp_path / name / "ab").mkdir()
        (tmp_path / name / "ab" / "kernel.so").write_bytes(os.urandom(MB))
    held = made_and_held(tmp_path / "inductor")
    assert sum(entry.size_bytes for entry in entries(tmp_path)) > 2 * MB
    tend(tmp_path, 0)
    assert (tmp_path / "inductor" / "ab" / "kernel.so").exists()
    assert not (tmp_path / "triton").exists()
    held.close()
    again = made_and_held(tmp_path / "triton")
    again.close()
    assert (tmp_path / "triton").is_dir()


@pytest.fixture
def tended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    monkeypatch.setattr(cache_tending, "tend", lambda _root, limit: calls.append(limit))
    return calls


def test_it_is_tended_once_a_minute(tmp_path: Path, tended: list[int]) -> None:
    tend_now_and_then(tmp_path, 7)
    tend_now_and_then(tmp_path, 8)
    assert tended == [7]
    os.utime(tmp_path / "tended", (time.time() - 61,) * 2)
    tend_now_and_then(tmp_path, 9)
    assert tended == [7, 9]


def test_a_clock_that_was_set_back_does_not_stop_it(tmp_path: Path, tended: list[int]) -> None:
    tend_now_and_then(tmp_path, 7)
    os.utime(tmp_path / "tended", (time.time() + 1e6,) * 2)
    tend_now_and_then(tmp_path, 8)
    assert tended == [7, 8]

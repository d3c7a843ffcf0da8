"""Tests of finding runs."""

from pathlib import Path

import pytest
from sample_transcripts import config, write_run

from runs.find import find_run, list_runs
from runs.store import create_run
from tasks.errors import UsageError


def test_found_by_path_id_name_and_beginning(tmp_path: Path) -> None:
    root = tmp_path / "local"
    run = write_run(root)
    asked = [str(run.path), run.id, f"causal_conv/{run.id}", "20260301-12", "causal_conv/2026", "causal_conv"]
    for text in asked:
        found = find_run(text, [root])
        assert found.run.path.samefile(run.path), text
        assert found.rollouts == ("rollout-1",)


def test_found_by_the_path_of_a_rollout_or_its_transcript(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    for path in (run.path / "rollout-1", run.transcript("rollout-1")):
        found = find_run(str(path), [])
        assert found.run.path.samefile(run.path)
        assert found.rollouts == ("rollout-1",)


def test_own_runs_come_before_shipped_ones(tmp_path: Path) -> None:
    own = write_run(tmp_path / "local", "20260401-000000-aaaaaa")
    write_run(tmp_path / "recorded", "20260501-000000-bbbbbb")
    assert find_run("causal_conv", [tmp_path / "local", tmp_path / "recorded"]).run.id == own.id
    assert find_run("202605", [tmp_path / "local", tmp_path / "recorded"]).run.id == "20260501-000000-bbbbbb"


def test_exact_id_wins_over_longer_ones(tmp_path: Path) -> None:
    write_run(tmp_path, "20260401-000000-aaaaaa")
    write_run(tmp_path, "20260401-000000-aaaaaa-2")
    assert find_run("20260401-000000-aaaaaa", [tmp_path]).run.id == "20260401-000000-aaaaaa"


def test_ambiguous_beginning_lists_the_candidates(tmp_path: Path) -> None:
    write_run(tmp_path, "20260401-000000-aaaaaa")
    write_run(tmp_path, "20260401-000000-bbbbbb")
    with pytest.raises(UsageError, match=r"could be any(.|\n)*aaaaaa(.|\n)*bbbbbb"):
        find_run("202604", [tmp_path])


def test_unknown_run_lists_what_exists(tmp_path: Path) -> None:
    write_run(tmp_path, "20260401-000000-aaaaaa")
    with pytest.raises(UsageError, match=r"no run 'nothing'(.|\n)*causal_conv/20260401-000000-aaaaaa"):
        find_run("nothing", [tmp_path])


def test_no_runs_at_all_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="any run at all"):
        find_run("nothing", [tmp_path])


def test_run_stopped_before_its_first_rollout_is_said(tmp_path: Path) -> None:
    create_run(tmp_path, config())
    with pytest.raises(UsageError, match="before its first rollout"):
        find_run("causal_conv", [tmp_path])


def test_rollouts_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    for name in ("rollout-10", "rollout-2"):
        (run.path / name).mkdir()
        (run.path / name / "transcript.jsonl").write_bytes(b"")
    assert run.rollouts() == ("rollout-1", "rollout-2", "rollout-10")
    assert [found.id for found in list_runs(tmp_path)] == [run.id]

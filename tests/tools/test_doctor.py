"""`doctor` tells what a target lacks, and never a secret."""

import json
import platform
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernelwright import app
from tasks.spec import Target
from tools.doctor import Finding, Report, examine

CPU, CUDA = Target.CPU, Target.CUDA


def finding(check: str, status: str, *needed_by: Target) -> Finding:
    return Finding.model_validate({"check": check, "status": status, "found": "", "needed_by": needed_by})


def test_a_target_works_unless_something_it_needs_is_missing() -> None:
    report = Report(
        findings=(
            finding("compiler", "ok", CPU, CUDA),
            finding("GPU", "missing", CUDA),
            finding("toolkit", "missing", CUDA),
            finding("profiler", "missing"),
            finding("cache", "note", CPU),
        )
    )
    assert report.works(CPU)
    assert report.lacks(CUDA) == ("GPU", "toolkit")


def test_this_machine_is_described() -> None:
    found = {finding.check: finding for finding in examine().findings}
    assert platform.python_version() in found["Python"].found
    assert found["PyTorch"].status == "ok"


def test_without_a_compiler_no_target_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    report = examine()
    assert not report.works(CPU)
    assert "C++ compiler" in report.lacks(CPU)
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 3


def test_a_cache_that_cannot_be_made_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    assert "cache" in examine().lacks(CPU)


def test_the_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-value")
    for arguments in (["doctor"], ["doctor", "--json"]):
        result = CliRunner().invoke(app, arguments)
        assert "OPENAI_API_KEY set" in result.output
        assert "secret" not in result.output


def test_json_is_one_object_a_line_in_one_form() -> None:
    lines = [json.loads(line) for line in CliRunner().invoke(app, ["doctor", "--json"]).stdout.splitlines()]
    assert {frozenset(line) for line in lines} == {frozenset({"check", "status", "found", "remedy", "needed_by"})}
    assert [line["check"] for line in lines[-2:]] == ["target cuda", "target cpu"]

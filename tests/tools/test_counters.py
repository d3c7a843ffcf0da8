"""What Nsight Compute wrote is read whole, and what it could not do is said; here the program is a stand-in."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from judging import CONVOLUTION, candidate_of, task_of

from tasks.spec import Target
from tools import counters
from tools.counters import command, measure_counters, read_counters
from tools.draws import USUAL, Trial
from tools.server_process import Processes
from tools.session import Session
from tools.subject import Limits

# The form of `--csv --page raw` in the manual of the Nsight Compute CLI: names, units, a row for each launch.
HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","dram__bytes_read.sum","dram__bytes_write.sum","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",'
    '"gpu__time_duration.sum","l1tex__t_sector_hit_rate.pct","lts__t_sector_hit_rate.pct",'
    '"sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active",'
    '"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",'
    '"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",'
    '"smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",'
    '"smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio"'
)
UNITS = '"","","","","","","","","","","","byte","byte","%","ns","%","%","%","%","inst","inst","inst","inst"'


def row(number: int, kernel: str, duration: str, read: str = "1,048,576") -> str:
    return (
        f'"{number}","77","python","host","{kernel}","1","7","(256, 1, 1)","(1056, 1, 1)","0","9.0","{read}","524288",'
        f'"61.50","{duration}","12.25","80.00","33.10","47.75","9.50","0.75","1.20","0.10"'
    )


REPORT = "\n".join(
    [
        "==PROF== Connected to process 77 (/usr/bin/python3.12)",
        HEADER,
        UNITS,
        row(0, "void scale_kernel<4>(const float *, float *)", "10,500"),
        row(1, "void scale_kernel<4>(const float *, float *)", "22,500", read="2,000,000"),
        row(2, "(anonymous namespace)::pack(float *)", "900", read="n/a"),
        "==PROF== Disconnected from process 77",
    ]
)
FORBIDDEN = (
    "==PROF== Connected to process 77 (/usr/bin/python3.12)\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0.\n"
)


def test_counters_of_each_kernels_longest_launch() -> None:
    found = read_counters(REPORT)
    assert found.missing == ""
    scale = found.of("void scale_kernel<4>(float const*, float*)")
    assert scale is not None
    assert scale.dram_read_bytes == 2_000_000.0, "the launch of 22,500 ns, not that of 10,500"
    assert scale.dram_write_bytes == 524_288.0
    assert scale.dram_throughput == pytest.approx(0.615)
    assert scale.sm_throughput == pytest.approx(0.331)
    assert scale.achieved_occupancy == pytest.approx(0.4775)
    assert scale.l1_hit_rate == pytest.approx(0.1225)
    assert scale.l2_hit_rate == pytest.approx(0.8)
    assert list(scale.stalls.items()) == [("long_scoreboard", 9.5), ("wait", 1.2), ("barrier", 0.75)]
    pack = found.of("pack(float*)")
    assert pack is not None and pack.dram_read_bytes is None
    assert found.of("other") is None


@pytest.mark.parametrize(
    ("text", "problem", "said"),
    [
        (FORBIDDEN, "", "does not permit hardware counters (ERR_NVGPUCTRPERM)"),
        ("", "no worker connected in time", "measured nothing: no worker connected in time"),
        ("==ERROR== Failed to find metric x\n", "", "measured nothing: ==ERROR== Failed to find metric x"),
        ("", "", "measured nothing: it wrote nothing."),
        (f"{HEADER}\n{UNITS}\n", "", "measured nothing"),
        (f"{HEADER}\n{UNITS}\n{'k' * 200_000}\n", "", "cannot be read: field larger than field limit"),
    ],
)
def test_why_there_are_no_counters(text: str, problem: str, said: str) -> None:
    found = read_counters(text, problem)
    assert found.kernels == {}
    assert said in found.missing


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Iterator[Session]:
    session = Session(
        task_of(tmp_path_factory.mktemp("counters"), CONVOLUTION),
        Target.CPU,
        Limits(),
        lambda _: None,
        processes=processes,
    )
    yield session
    session.close()


def measured(session: Session) -> counters.MeasuredCounters:
    trial = Trial(session.task.facts.benchmark_sizes(Target.CPU), USUAL, instance=0)
    inputs = session.draws.inputs(session.task.facts, trial)
    state = session.draws.state(session.oracle.template)
    return measure_counters(session, candidate_of(CONVOLUTION), ["spaces::scale_kernel"], inputs, state)


def fake_ncu(folder: Path, body: str) -> Path:
    """Runs the program that it is given, after flags with one value each, and writes what it is told."""
    path = folder / "ncu"
    path.write_text(
        f"#!{sys.executable}\nimport subprocess, sys\n"
        "flags, program = {'--csv': ''}, sys.argv[2:]\n"
        "while program[0].startswith('--'):\n    flags[program[0]], program = program[1], program[2:]\n" + body
    )
    path.chmod(0o700)
    return path


def test_a_call_is_made_under_the_program_and_its_report_read(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report").write_text(REPORT)
    body = (
        "ended = subprocess.run(program)\n"
        f"report = open({str(tmp_path / 'report')!r}).read() if ended.returncode == 0 else str(ended.returncode)\n"
        "open(flags['--log-file'], 'w').write(report)\n"
    )
    ncu = fake_ncu(tmp_path, body)
    monkeypatch.setattr(counters, "find_ncu", lambda: ncu)
    found = measured(session)
    assert found.missing == ""
    assert found.of("scale_kernel") is not None


def test_a_program_that_does_not_end_is_stopped_and_said(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ncu = fake_ncu(tmp_path, "import time\ntime.sleep(600)\n")
    monkeypatch.setattr(counters, "find_ncu", lambda: ncu)
    monkeypatch.setattr(counters, "LIMIT_S", 1.0)
    assert "not finished within 1 s and was stopped" in measured(session).missing


def test_without_the_program_nothing_is_run(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "find_ncu", lambda: None)
    assert measured(session).missing.startswith("Nsight Compute (ncu) is not installed")


def test_only_the_candidates_kernels_are_asked_for(tmp_path: Path) -> None:
    argv = command(Path("/opt/ncu"), ["pack", "scale_kernel"], tmp_path / "log")
    assert argv[argv.index("--kernel-name") + 1] == "regex:^(pack|scale_kernel)$"
    assert argv[argv.index("--clock-control") + 1] == "none"
    assert argv[argv.index("--launch-count") + 1] == "16"

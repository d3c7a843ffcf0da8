"""Which GPUs a process may use, asked of a driver that numbers them as CUDA_VISIBLE_DEVICES says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_driver import UUIDS, build_fake_driver
from processes import ROOT

LISTS = "from tools.gpus import visible_gpus; print([(gpu.uuid, gpu.capability) for gpu in visible_gpus()])"
LANES = """
import dataclasses, os, subprocess, sys
from tasks.spec import Target
from tools import local_site
site = local_site.local_site(Target.CUDA, print)
print(site.lanes)
local_site.MemberProcess = lambda role, progress, env, judge, nice: (nice, env.get("CUDA_VISIBLE_DEVICES"))
print([site.start(role, number) for role, number in (("lane", 0), ("lane", 1), ("builder", 0))][:len(site.lanes) + 1])
"""


def told(code: str, folder: Path, visible: str | None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment |= {"LD_LIBRARY_PATH": str(folder), **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})}
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake_driver(tmp_path_factory.mktemp("driver"))


@pytest.mark.parametrize(("visible", "order"), [(None, (0, 1)), ("1,0", (1, 0)), ("1", (1,)), ("", ())])
def test_they_come_in_the_processes_own_order(driver: Path, visible: str | None, order: tuple[int, ...]) -> None:
    assert told(LISTS, driver, visible) == f"{[(UUIDS[number], (9, 0)) for number in order]}\n"


def test_each_gpu_has_a_lane_that_sees_no_other(driver: Path) -> None:
    """The identity, not the number, stands in the lane's environment; a builder needs none, and is nicer."""
    lanes, visible = told(LANES, driver, "1,0").splitlines()
    assert lanes == "('cuda:0', 'cuda:1')"
    assert visible == str([(0, UUIDS[1]), (0, UUIDS[0]), (10, "1,0")])

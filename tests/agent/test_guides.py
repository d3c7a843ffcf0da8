"""The guides: every fragment that is marked complete compiles for Hopper, and every guide is short and in the list."""

import re
from pathlib import Path

import pytest

from agent.guides.shelf import guide_titles, read_guide
from tools import process
from tools.toolchain import find_toolchain

COMPLETE = re.compile(r"^```cuda complete\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FRAGMENTS = [
    (f"{name}-{number}", text)
    for name in guide_titles()
    for number, text in enumerate(COMPLETE.findall(read_guide(name)), start=1)
]


def test_the_guides_are_those_that_the_issue_names() -> None:
    assert list(guide_titles()) == [
        "building-fast",
        "causal-dilated",
        "depthwise",
        "fused-normalisation",
        "implicit-gemm",
        "pipelines",
        "reading-a-profile",
    ]
    for name, title in guide_titles().items():
        text = read_guide(name)
        assert text.startswith(f"# {title}\n")
        assert 40 <= len(text.splitlines()) <= 120
        assert text.count("```") % 2 == 0


def test_guides_name_only_guides_that_exist() -> None:
    for name in guide_titles():
        named = re.findall(r"\(guide\s+`([\w-]+)`\)", read_guide(name))
        assert set(named) <= set(guide_titles()), name


@pytest.mark.nvcc
@pytest.mark.parametrize("text", [text for _, text in FRAGMENTS], ids=[name for name, _ in FRAGMENTS])
def test_a_complete_fragment_compiles(tmp_path: Path, text: str) -> None:
    (tmp_path / "fragment.cu").write_text(text)
    chain = find_toolchain()
    argv = [chain.nvcc, "-ccbin", chain.host_compiler, "-arch=sm_90a", "-O3", "-Werror", "all-warnings"]
    done = process.run([*argv, "-c", "fragment.cu", "-o", "fragment.o"], cwd=tmp_path, timeout_s=120.0)
    assert done.returncode == 0, done.output

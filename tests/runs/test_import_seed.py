"""The seed format: reasoning with elisions and a call; and the four seeds themselves, where they are."""

import re
from pathlib import Path

import pytest
from foreign_files import CALL, KERNEL, SEED, imported

from runs.events import Ended, EndReason, Imported, ModelReplied, RolloutStarted
from runs.importing.document import ForeignFormatError
from runs.importing.seed import looks_like_seed, read_seed
from runs.store import RunDirectory
from tasks.loader import find_task
from tasks.target import Target
from tools.candidate import Candidate
from tools.judge import Judge
from tools.results import Evaluation, Fault
from tools.server_process import Processes
from tools.verdict import Verdict

SEEDS = Path(__file__).resolve().parents[3] / "shared" / "seeds"
needs_seeds = pytest.mark.skipif(not SEEDS.is_dir(), reason=f"needs the seed transcripts in {SEEDS}")


def test_reasoning_and_call_become_one_turn(tmp_path: Path) -> None:
    run = imported(tmp_path, SEED, name="seed.txt")
    started, reply, ended = run.events("rollout-1")
    assert isinstance(started, RolloutStarted) and isinstance(reply, ModelReplied) and isinstance(ended, Ended)
    assert reply.reasoning.startswith("First I think.\n```python\nclass ModelNew")
    assert reply.reasoning.endswith("A part is missing: ...[ omitted 4616 characters ]... and it goes on.")
    (call,) = reply.tool_calls
    assert (call.name, call.arguments) == ("compile_kernel", CALL)
    assert ended.reason is EndReason.IMPORTED
    assert [path.stem for path in run.candidates.iterdir()] == [Candidate(KERNEL).id]


def test_what_the_file_does_not_say_is_absent(tmp_path: Path) -> None:
    run = imported(tmp_path, SEED, name="seed.txt")
    started, reply, ended = run.events("rollout-1")
    assert isinstance(started, RolloutStarted) and isinstance(reply, ModelReplied)
    assert (started.time, started.target, started.briefing, started.tools) == (None, None, None, ())
    assert (started.system_prompt, started.opening) == ("", "")
    assert (reply.time, reply.usage, reply.finish_reason, reply.seconds, reply.cost_usd) == (None,) * 5
    assert ended.time is None
    config = run.config()
    assert (config.target, config.machine, config.commit, config.versions) == (None, None, None, {})


def test_heading_of_a_cut_text_is_kept() -> None:
    (draft,) = read_seed("reasoning (truncated 12 chars): a ...[ omitted 12 characters ]... b\n")
    (reply,) = draft.events
    assert isinstance(reply, ModelReplied)
    assert reply.reasoning == "a ...[ omitted 12 characters ]... b"
    assert reply.raw == {"heading": "reasoning (truncated 12 chars)"}
    assert reply.tool_calls == ()


def test_further_turns_and_what_follows_the_last() -> None:
    (draft,) = read_seed(
        'reasoning\na\ncall → f\ncallf\n{}\ncall → g\ncallg\n{"x": 1}\nreasoning\nb\ncall → f\ncallf\n{}\nrest'
    )
    replies = [event for event in draft.events if isinstance(event, ModelReplied)]
    assert [[(call.name, call.arguments) for call in reply.tool_calls] for reply in replies] == [
        [("f", "{}"), ("g", '{"x": 1}')],
        [("f", "{}")],
    ]
    assert len({call.id for reply in replies for call in reply.tool_calls}) == 3
    (kept,) = [event for event in draft.events if isinstance(event, Imported)]
    assert (kept.turn, kept.text) == (2, "rest")


def test_broken_arguments_are_told_with_their_line() -> None:
    with pytest.raises(ForeignFormatError, match=r"^line 5: the arguments of the call f are not JSON"):
        read_seed('reasoning\na\ncall → f\ncallf\n{"x": }')


@pytest.mark.parametrize("text", ["", "hello", "reasonings\n", "my reasoning\n", "[]"])
def test_other_texts_are_no_seeds(text: str) -> None:
    assert not looks_like_seed(text)


def imported_seed(tmp_path: Path, number: str) -> RunDirectory:
    (file,) = SEEDS.glob(f"{number}_*.txt")
    return imported(tmp_path, file.read_bytes(), name=file.name)


@needs_seeds
@pytest.mark.parametrize(
    ("number", "task", "elision"),
    [
        ("000", "prenorm_dilated_residual", "...[ omitted 4616 characters ]..."),
        ("001", "conv_groupnorm", "...[ omitted 10448 characters ]..."),
        ("002", "causal_conv", "...[ omitted 66956 characters ]..."),
        ("003", "depthwise_separable", ""),
    ],
)
def test_seeds_are_imported_under_their_tasks(tmp_path: Path, number: str, task: str, elision: str) -> None:
    run = imported_seed(tmp_path, number)
    _, reply, _ = run.events("rollout-1")
    assert isinstance(reply, ModelReplied)
    assert (run.config().task, run.config().model) == (task, "unknown")
    assert elision in reply.reasoning
    assert len(reply.tool_calls) == (number == "003")
    assert len(list(run.candidates.iterdir())) == (number == "003")


def last_seeds_kernel(tmp_path: Path) -> Candidate:
    (path,) = imported_seed(tmp_path, "003").candidates.iterdir()
    candidate = Candidate(path.read_bytes().decode())
    assert candidate.id == path.stem
    return candidate


@needs_seeds
def test_last_seeds_kernel_is_extracted_as_it_stands(tmp_path: Path) -> None:
    """Its spaces were lost when the seed was made: every indented line has one."""
    text = last_seeds_kernel(tmp_path).text
    assert text.startswith("import torch\nimport torch.nn as nn\n") and text.endswith("\n return output")
    assert "\n def __init__(self, in_channels: int, out_channels: int" in text


@needs_seeds
def test_last_seeds_kernel_is_scored(tmp_path: Path, processes: Processes) -> None:
    """It is no Python any more, so it gets no further, on whichever target."""
    with Judge(find_task("depthwise_separable"), Target.CPU, processes=processes) as judge:
        require_lost_indentation(judge.evaluate(last_seeds_kernel(tmp_path)))


@needs_seeds
@pytest.mark.nvcc
def test_last_seeds_kernel_with_indentation_put_back_is_built(tmp_path: Path, processes_for_cuda: Processes) -> None:
    """It then asks for a binding of a `__global__` kernel, which Python cannot launch."""
    text = last_seeds_kernel(tmp_path).text
    head, class_line, body = text.partition("class ModelNew")
    indented = re.sub(r"(?m)^ (def )?", lambda found: "    def " if found[1] else " " * 8, body)
    with Judge(find_task("depthwise_separable"), Target.CUDA, processes=processes_for_cuda) as judge:
        result = judge.compile(Candidate(head + class_line + indented))
    assert isinstance(result, Fault)
    assert "fused_conv1d_silu_pw_kernel" in result.message and "names a __global__ kernel" in result.message


@needs_seeds
@pytest.mark.gpu
def test_last_seeds_kernel_is_scored_on_a_gpu(tmp_path: Path) -> None:
    with Judge(find_task("depthwise_separable"), Target.CUDA) as judge:
        require_lost_indentation(judge.evaluate(last_seeds_kernel(tmp_path)))


def require_lost_indentation(evaluation: Evaluation) -> None:
    assert evaluation.verdict is Verdict.BUILD_FAILED
    assert "expected an indented block after function definition on line 61" in evaluation.message

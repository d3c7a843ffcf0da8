"""The candidates in tests/candidates with their tasks and verdicts, as its README lists them."""

from pathlib import Path
from typing import NamedTuple

from tasks.loader import find_task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.judge import Judge
from tools.server_process import Processes
from tools.verdict import Verdict

FOLDER = Path(__file__).resolve().parents[1] / "candidates"
CORRECT, INCORRECT, BUILD_FAILED = (frozenset({v}) for v in (Verdict.CORRECT, Verdict.INCORRECT, Verdict.BUILD_FAILED))
CONTRACT_ERROR, STALE = frozenset({Verdict.CONTRACT_ERROR}), frozenset({Verdict.STALE_OUTPUT})
# The cache may be hit by luck before anything is timed.
CACHED = STALE | INCORRECT


class Expected(NamedTuple):
    """What a candidate should get."""

    target: Target
    file: str
    task: str
    verdicts: frozenset[Verdict]

    @property
    def candidate(self) -> Candidate:
        """The file as a candidate."""
        return Candidate((FOLDER / self.target / self.file).read_text(encoding="utf-8"))


CPU = tuple(
    Expected(Target.CPU, *row)
    for row in (
        ("causal_naive.py", "causal_conv", CORRECT),
        ("causal_weight_flattened.py", "causal_conv", CORRECT),
        ("causal_load_reference.py", "causal_conv", CORRECT),
        ("causal_own_names.py", "causal_conv", CONTRACT_ERROR),
        ("causal_wrong_tap_order.py", "causal_conv", INCORRECT),
        ("causal_syntax_error.py", "causal_conv", BUILD_FAILED),
        ("causal_cached_by_pointer.py", "causal_conv", CACHED),
        ("causal_cached_by_fingerprint.py", "causal_conv", CACHED),
        ("causal_stale_after_warmup.py", "causal_conv", STALE),
        ("groupnorm_correct.py", "conv_groupnorm", CORRECT),
        ("groupnorm_no_affine.py", "conv_groupnorm", INCORRECT),
        ("depthwise_naive.py", "depthwise_separable", CORRECT),
        ("depthwise_kaiming_a5.py", "depthwise_separable", CORRECT),
        ("prenorm_eval.py", "prenorm_dilated_residual_eval", CORRECT),
        ("prenorm_train.py", "prenorm_dilated_residual", CORRECT),
        ("prenorm_train_frozen_statistics.py", "prenorm_dilated_residual", INCORRECT),
    )
)
CUDA = tuple(
    Expected(Target.CUDA, *row)
    for row in (
        ("causal_naive.py", "causal_conv", CORRECT),
        ("causal_wrong_tap_order.py", "causal_conv", INCORRECT),
        ("causal_cached_by_pointer.py", "causal_conv", CACHED),
        ("causal_cached_by_fingerprint.py", "causal_conv", CACHED),
        ("causal_stale_after_warmup.py", "causal_conv", STALE),
        # Right outputs; what else is wrong with them only a strict evaluation sees.
        ("causal_reads_beyond.py", "causal_conv", CORRECT),
        ("causal_races.py", "causal_conv", CORRECT),
        ("causal_reads_unwritten.py", "causal_conv", CORRECT),
        ("fast_causal.py", "causal_conv", CORRECT),
        ("depthwise_global_in_functions.py", "depthwise_separable", BUILD_FAILED),
        ("depthwise_kaiming_a5.py", "depthwise_separable", CORRECT),
        ("fast_depthwise.py", "depthwise_separable", CORRECT),
        ("groupnorm_atomics.py", "conv_groupnorm", CORRECT),
        ("groupnorm_two_pass.py", "conv_groupnorm", CORRECT),
        ("groupnorm_no_affine.py", "conv_groupnorm", INCORRECT),
        ("fast_groupnorm.py", "conv_groupnorm", CORRECT),
        ("prenorm_eval_naive.py", "prenorm_dilated_residual_eval", CORRECT),
        ("fast_prenorm_eval.py", "prenorm_dilated_residual_eval", CORRECT),
        ("prenorm_train_naive.py", "prenorm_dilated_residual", CORRECT),
        ("fast_prenorm_train.py", "prenorm_dilated_residual", CORRECT),
    )
)
EXACT_ON_CUDA = (
    "causal_naive.py",
    "depthwise_kaiming_a5.py",
    "groupnorm_two_pass.py",
    "prenorm_eval_naive.py",
    "prenorm_train_naive.py",
)
"""Those that compute in fp32 what the task calls tf32."""


class OneJudge:
    """The judge of one task at a time, kept until another task is asked for: its baselines are timed once, and none of
    another task's stands on the device.

    A fixture cannot be that: pytest ends one that is parametrised with each row, whether or not the task is the same.
    """

    def __init__(self, target: Target, processes: Processes | None = None, *, fixed_candidates: bool = False) -> None:
        self._fixed_candidates = fixed_candidates
        self._target = target
        self._processes = processes
        self._judge: Judge | None = None

    def of(self, task: str) -> Judge:
        """The judge of this task."""
        if self._judge is None or self._judge.task.name != task:
            self.close()
            self._judge = Judge(
                find_task(task), self._target, fixed_candidates=self._fixed_candidates, processes=self._processes
            )
        return self._judge

    def close(self) -> None:
        """End the one that there is."""
        if self._judge is not None:
            self._judge.close()
            self._judge = None

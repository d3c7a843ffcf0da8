"""Where the candidates of a run are evaluated: by a judge of its own, or in the pool for several rollouts at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.loader import Task
from tasks.spec import Target
from tools.briefing import Briefing

if TYPE_CHECKING:
    # The tools need PyTorch, whose import everything else would wait for.
    from tools.toolbox import Tools


@dataclass(frozen=True)
class Workplace:
    """What the rollouts of a run need of the tools."""

    briefing: Briefing
    make_tools: "Callable[[], Tools]"
    """Tools for one rollout."""
    hang_up: Callable[[], None]
    """Have no rollout wait for an evaluation any longer."""


@contextmanager
def workplace(task: Task, target: Target, parallel: int, progress: Callable[[str], None]) -> Iterator[Workplace]:
    """Evaluate for so many rollouts at once within the block, and leave nothing behind.

    Candidates are written by a model after the judge was made, so each is verified with values of its own
    (`Job.fixed_candidates` stays false).
    """
    from tools.toolbox import Toolbox

    if parallel == 1:
        from tools.judge import Judge

        with Judge(task, target, progress=progress) as judge:
            yield Workplace(judge.briefing(), lambda: Toolbox(judge), lambda: None)
        return
    from tools.jobs import JobTask
    from tools.local_site import local_site
    from tools.pool import Pool
    from tools.pooled import PooledEvaluator

    job_task = JobTask.of(task)
    with Pool([local_site(target, progress)]) as pool:
        yield Workplace(
            PooledEvaluator(pool, job_task, target).briefing(),
            lambda: Toolbox(PooledEvaluator(pool, job_task, target)),
            pool.hang_up,
        )

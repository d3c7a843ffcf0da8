"""The pool on a Ray cluster of two nodes on this machine, one of which dies in the middle of its work."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pool_stand_ins import JUDGE, Orders, Script
from processes import ROOT, within

from tasks.errors import UnavailableError, UsageError
from tasks.spec import Target
from tools.jobs import Evaluated
from tools.pool import Pool
from tools.verdict import Verdict

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the nodes' processes have their temporary files."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(Path(__file__).parent))))
        patch.setenv("TMPDIR", str(home))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield home


@pytest.fixture(scope="module")
def cluster(surroundings: Path) -> Iterator["Cluster"]:
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    made.add_node(num_cpus=1, num_gpus=0)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield made
    finally:
        for end in cast(tuple[Any, Any], (ray.shutdown, made.shutdown)):
            end()
    # Ray kills what a lost node's actors have started; who next starts a process there tidies up after them.
    assert within(10, lambda: len(list(surroundings.glob("kernelwright-*"))) <= 2), list(surroundings.iterdir())


def test_without_a_cluster_the_caller_is_told() -> None:
    from tools.ray_sites import ray_sites

    with pytest.raises(UsageError, match="no Ray cluster answers at 'auto'"):
        ray_sites("auto", Target.CPU)


def test_a_node_is_killed_and_its_jobs_are_done_by_the_other(cluster: "Cluster", tmp_path: Path) -> None:
    from tools.ray_sites import ray_sites

    jobs = [Script(name=str(number), evaluate=Orders(sleep_s=0.5)).job() for number in range(12)]
    jobs.append(Script(name="unlucky", evaluate=Orders(dies_once=str(tmp_path / "died"))).job())
    jobs.append(Script(name="fatal", evaluate=Orders(dies=True)).job())
    sites = ray_sites(cluster.address, Target.CPU, JUDGE)
    assert [(site.lanes, site.builders) for site in sites] == 2 * [(("cpu:0",), 1)]
    found: list[Evaluated] = []
    with Pool(sites) as pool:
        for each in pool.evaluate(jobs):
            found.append(each)
            if len(found) == 4:
                cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
    verdicts = {each.job: each.evaluation.verdict for each in found}
    assert len(found) == len(jobs)
    assert verdicts == {job.id: Verdict.CORRECT for job in jobs[:-1]} | {jobs[-1].id: Verdict.HARNESS_ERROR}
    nodes = [span.where.partition(" ")[0] for each in found for span in each.spans if span.stage == "verify"]
    assert len(set(nodes)) == 2
    # After it was killed the other one is alone.
    assert len(set(nodes[8:])) == 1


def test_the_tasks_text_travels_with_a_job(cluster: "Cluster", tmp_path: Path) -> None:
    """On another machine there is no such path."""
    from tools.ray_sites import ray_sites

    path = tmp_path / "problem.py"
    path.write_text((ROOT / "tasks" / "causal_conv.py").read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    job = Script(name="any").job(str(path))
    path.unlink()
    with Pool(ray_sites(cluster.address, Target.CPU, JUDGE)) as pool:
        (found,) = pool.evaluate([job])
    assert (found.evaluation.task, found.evaluation.verdict) == ("causal_conv", Verdict.CORRECT)


def test_without_a_gpu_in_the_cluster_the_target_is_unavailable(cluster: "Cluster") -> None:
    from tools.ray_sites import ray_sites

    with pytest.raises(UnavailableError, match="no node of the Ray cluster has a GPU for the target cuda"):
        ray_sites(cluster.address, Target.CUDA)

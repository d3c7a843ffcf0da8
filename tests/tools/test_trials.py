"""Which shapes and inputs the untimed checks hold, for the shipped tasks and under a task's rules."""

import pytest

from tasks.loader import Task, all_tasks
from tasks.spec import Axis, InputSpec, Precision, Target, TargetPrecision, TaskFacts
from tools.draws import CONSTANT, FAR, IMPULSES, LARGE, MANY, SMALL, UNEVEN, USUAL, Draws, Trial, trials

REPEATS = 20


def facts(*axes: Axis, receptive_field: int = 1) -> TaskFacts:
    return TaskFacts(
        name="one",
        title="",
        used_in="",
        precision=TargetPrecision(cuda=Precision.TF32, cpu=Precision.FP32),
        axes=axes,
        inputs=(InputSpec(name="x", dims=(*(axis.name for axis in axes), 4)),),
        receptive_field=receptive_field,
    )


def planned(of: TaskFacts, target: Target = Target.CPU) -> list[tuple[Trial, ...]]:
    return [trials(of, target, Draws("cpu")) for _ in range(REPEATS)]


@pytest.mark.parametrize("task", all_tasks(), ids=lambda task: task.name)
@pytest.mark.parametrize("target", Target)
def test_the_shipped_tasks(task: Task, target: Target) -> None:
    minima = {axis.name: axis.minimum for axis in task.facts.axes}
    for plan in planned(task.facts, target):
        sizes = [trial.sizes for trial in plan]
        assert all(size[name] >= least for size in sizes for name, least in minima.items())
        assert minima in sizes, "the smallest valid shape"
        assert task.facts.benchmark_sizes(target) in sizes
        # A kernel that saturated on this shape alone passed: only values of about one were asked for there.
        assert plan[-1].sizes == task.facts.benchmark_sizes(target) and plan[-1].kind is LARGE
        assert any(size["N"] == 1 and size["L"] > 64 for size in sizes)
        assert any(size["N"] > 8 for size in sizes)
        assert any(size["N"] > 1 and size["L"] < task.facts.receptive_field for size in sizes)
        assert any(size["N"] > 1 and size["L"] % 2 == 1 and size["L"] > 64 for size in sizes)
        assert {trial.kind for trial in plan} == {USUAL, FAR, LARGE, SMALL, IMPULSES, CONSTANT, UNEVEN}
        assert {trial.instance for trial in plan} == {0, 1}


def test_instances_come_in_order() -> None:
    """A worker makes the second instance once."""
    for plan in planned(all_tasks()[0].facts):
        instances = [trial.instance for trial in plan]
        assert instances == sorted(instances)


def test_shapes_are_drawn_anew() -> None:
    assert len({plan[2].sizes["L"] for plan in planned(all_tasks()[0].facts)}) > 1


def test_minimum_and_multiple_are_kept() -> None:
    rules = facts(
        Axis(name="N", cuda=8, cpu=8, multiple_of=4), Axis(name="L", cuda=320, cpu=320, minimum=33, multiple_of=16)
    )
    for plan in planned(rules):
        for trial in plan:
            assert trial.sizes["N"] % 4 == 0 < trial.sizes["N"]
            assert trial.sizes["L"] % 16 == 0
            assert trial.sizes["L"] >= 48


def test_a_task_with_one_axis() -> None:
    for plan in planned(facts(Axis(name="N", cuda=8, cpu=8))):
        assert plan[0].sizes == {"N": 1}
        assert all(1 <= trial.sizes["N"] <= MANY for trial in plan)


def test_a_task_of_one_shape() -> None:
    for plan in planned(facts()):
        assert [trial.sizes for trial in plan] == [{}] * len(plan)


def test_a_long_receptive_field() -> None:
    rules = facts(Axis(name="N", cuda=8, cpu=8), Axis(name="L", cuda=99, cpu=99), receptive_field=5000)
    for plan in planned(rules):
        assert any(trial.sizes["L"] > 5000 for trial in plan)
        assert any(1 < trial.sizes["L"] < 5000 for trial in plan)


def test_a_trials_label_names_shape_and_kind() -> None:
    assert Trial({"N": 1, "L": 5}, USUAL, 0).label == "N=1 L=5, channel offsets"

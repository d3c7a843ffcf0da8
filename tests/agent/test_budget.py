"""Tests of budgets and prices."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.budget import Budget, RunBudget, cost_usd
from agent.control import EndRollout
from agent.prices import prices_of
from runs.config import Limits, Prices, Spending
from runs.events import EndReason, Usage
from tasks.errors import UsageError

PRICES = Prices(input=2.0, cached_input=0.5, output=10.0, as_of="2026-01-01")


def test_cached_input_is_a_part_of_the_input_and_reasoning_of_the_output() -> None:
    usage = Usage(input_tokens=1_000_000, cached_tokens=250_000, output_tokens=500_000, reasoning_tokens=400_000)
    # By hand: 0.75 x 2.00 + 0.25 x 0.50 + 0.5 x 10.00 dollars.
    assert cost_usd(usage, PRICES) == pytest.approx(6.625)


def test_server_that_counts_more_cached_than_input_is_not_paid_for_it() -> None:
    assert cost_usd(Usage(input_tokens=100, cached_tokens=1000), PRICES) == pytest.approx(100 * 0.5e-6)


def test_unknown_prices_are_unknown_costs() -> None:
    budget = Budget(Limits(), None)
    assert budget.charge(Usage(input_tokens=5)) is None
    assert budget.spent.dollars is None
    budget.check()


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(turns=1), EndReason.TURN_LIMIT),
        (Limits(tokens=30), EndReason.TOKEN_LIMIT),
        (Limits(seconds=9.0), EndReason.TIME_LIMIT),
        (Limits(dollars=0.0001), EndReason.COST_LIMIT),
        (Limits(gpu_seconds=5.0), EndReason.GPU_LIMIT),
    ],
)
def test_each_limit_ends_the_rollout_by_its_own_name(limits: Limits, reason: EndReason) -> None:
    now = 100.0
    budget = Budget(limits, PRICES, clock=lambda: now)
    budget.check()
    budget.charge(Usage(input_tokens=20, output_tokens=10))
    budget.charge_device(5.0)
    now = 109.0
    with pytest.raises(EndRollout) as end:
        budget.check()
    assert end.value.reason is reason


def test_what_is_left_never_falls_below_nothing() -> None:
    budget = Budget(Limits(turns=1, tokens=10), None)
    for _ in range(3):
        budget.charge(Usage(input_tokens=20))
    assert (budget.left.turns, budget.left.tokens) == (0, 0)


def test_price_table_is_read_by_exact_name(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text('["some-model"]\ninput = 1.0\ncached_input = 0.1\noutput = 4.0\nas_of = "2026-01-01"\n')
    assert prices_of("some-model", table) == Prices(input=1.0, cached_input=0.1, output=4.0, as_of="2026-01-01")
    assert prices_of("some-model-2", table) is None


def test_shipped_price_table_can_be_read() -> None:
    assert prices_of("a model that nobody sells") is None


def test_broken_price_table_says_which(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text('["some-model"]\ninput = "free"\n')
    with pytest.raises(UsageError, match=r"prices\.toml"):
        prices_of("some-model", table)


@pytest.mark.parametrize("limits", [Limits(seconds=5.0), Limits(gpu_seconds=5.0)])
def test_no_tool_call_is_made_once_time_is_up(limits: Limits) -> None:
    now = 0.0
    budget = Budget(limits, None, clock=lambda: now)
    budget.check_work()
    budget.charge_device(5.0)
    now = 5.0
    with pytest.raises(EndRollout):
        budget.check_work()


def test_turns_and_tokens_that_are_used_up_let_the_calls_of_the_last_reply_be_carried_out() -> None:
    budget = Budget(Limits(turns=1, tokens=5, dollars=1e-9), PRICES)
    budget.charge(Usage(input_tokens=20))
    budget.check_work()


def test_what_was_spent_before_counts_but_its_clock_goes_on_from_there() -> None:
    now = 1000.0
    before = Spending(turns=2, input_tokens=20, output_tokens=10, seconds=50.0, dollars=0.5, gpu_seconds=4.0)
    budget = Budget(Limits(turns=3, seconds=60.0), PRICES, clock=lambda: now, before=before)
    now = 1009.0
    budget.check()
    assert budget.spent == before.model_copy(update={"seconds": 59.0})
    assert (budget.left.turns, budget.left.seconds) == (1, 1.0)
    now = 1010.0
    with pytest.raises(EndRollout) as end:
        budget.check()
    assert end.value.reason is EndReason.TIME_LIMIT


def test_rollouts_share_the_budget_of_their_run() -> None:
    shared = RunBudget(Limits(turns=3), None)
    first, second = (Budget(Limits(turns=2), None, run=shared) for _ in range(2))
    for budget in (first, second, first):
        budget.reserve(Usage())
        budget.charge(Usage(input_tokens=10))
    assert (first.spent.turns, second.spent.turns, shared.spent.turns, shared.spent.tokens) == (2, 1, 3, 30)
    assert second.spent_by_run is not None and second.spent_by_run.turns == 3
    with pytest.raises(EndRollout, match="The run's limit of 3 turns") as end:
        second.reserve(Usage())
    assert end.value.reason is EndReason.TURN_LIMIT
    with pytest.raises(EndRollout, match="The limit of 2 turns"):
        first.reserve(Usage())


def test_what_one_rollout_waits_for_is_not_left_for_another() -> None:
    shared = RunBudget(Limits(tokens=100, dollars=1.0), PRICES)
    first, second = (Budget(Limits(), PRICES, run=shared) for _ in range(2))
    first.reserve(Usage(input_tokens=100))
    with pytest.raises(EndRollout, match="100 tokens"):
        second.reserve(Usage())
    with pytest.raises(EndRollout, match="run's limit of 100 tokens"):
        second.reserve(Usage())
    first.release()
    first.release()
    assert (second.spent.turns, shared.spent.turns) == (0, 0)
    second.reserve(Usage(input_tokens=50))
    second.charge(Usage(input_tokens=60))
    assert shared.left.tokens == 40
    assert shared.spent.dollars == pytest.approx(60 * 2e-6)


def test_threads_that_ask_at_once_do_not_spend_more_than_there_is() -> None:
    shared = RunBudget(Limits(turns=50), None)
    begin = threading.Barrier(8)

    def spend() -> int:
        budget = Budget(Limits(), None, run=shared)
        begin.wait()
        turns = 0
        while True:
            try:
                budget.reserve(Usage())
            except EndRollout:
                return turns
            turns += 1
            budget.charge(Usage(input_tokens=1))

    with ThreadPoolExecutor(8) as threads:
        turns = [future.result() for future in [threads.submit(spend) for _ in range(8)]]
    assert sum(turns) == shared.spent.turns == shared.spent.input_tokens == 50


def test_sooner_end_of_rollout_and_run_bounds_how_long_a_reply_is_waited_for() -> None:
    now = 0.0
    shared = RunBudget(Limits(seconds=30.0), None, clock=lambda: now)
    budget = Budget(Limits(seconds=50.0), None, clock=lambda: now, run=shared)
    now = 10.0
    assert budget.seconds_left == 20.0
    assert Budget(Limits(), None).seconds_left is None

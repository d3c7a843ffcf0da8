"""Tests of budgets and prices."""

from pathlib import Path

import pytest

from agent.budget import Budget, cost_usd
from agent.control import EndRollout
from agent.prices import prices_of
from runs.config import Limits, Prices
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
    ],
)
def test_each_limit_ends_the_rollout_by_its_own_name(limits: Limits, reason: EndReason) -> None:
    now = 100.0
    budget = Budget(limits, PRICES, clock=lambda: now)
    budget.check()
    budget.charge(Usage(input_tokens=20, output_tokens=10))
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

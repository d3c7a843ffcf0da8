"""The budget of one rollout: what it may spend, checked before spending."""

import time
from collections.abc import Callable

from agent.control import EndRollout
from runs.config import Limits, Prices, Spending
from runs.events import EndReason, Usage


class Budget:
    """Counts what a rollout spends against its limits."""

    def __init__(self, limits: Limits, prices: Prices | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._prices = prices
        self._clock = clock
        self._began = clock()
        self._turns = 0
        self._input_tokens = 0
        self._output_tokens = 0
        self._dollars = 0.0

    @property
    def spent(self) -> Spending:
        """What has been spent up to now."""
        return Spending(
            turns=self._turns,
            input_tokens=self._input_tokens,
            output_tokens=self._output_tokens,
            seconds=self._clock() - self._began,
            dollars=None if self._prices is None else self._dollars,
        )

    @property
    def left(self) -> Limits:
        """What is left of each limit; None where there is none."""
        spent, limits = self.spent, self.limits
        return Limits(
            turns=None if limits.turns is None else max(0, limits.turns - spent.turns),
            tokens=None if limits.tokens is None else max(0, limits.tokens - spent.tokens),
            seconds=None if limits.seconds is None else max(0.0, limits.seconds - spent.seconds),
            dollars=None if limits.dollars is None else max(0.0, limits.dollars - self._dollars),
        )

    def check(self) -> None:
        """Raise EndRollout if a limit is reached, so that no further reply is asked for."""
        left, limits = self.left, self.limits
        reached = (
            (left.turns, EndReason.TURN_LIMIT, f"{limits.turns} turns"),
            (left.tokens, EndReason.TOKEN_LIMIT, f"{limits.tokens} tokens"),
            (left.seconds, EndReason.TIME_LIMIT, f"{limits.seconds} seconds"),
            (left.dollars, EndReason.COST_LIMIT, f"{limits.dollars} dollars"),
        )
        for remainder, reason, limit in reached:
            if remainder is not None and remainder <= 0:
                raise EndRollout(reason, f"The limit of {limit} is reached.")

    def charge(self, usage: Usage) -> float | None:
        """Count one reply; returns its cost in dollars, None where prices are not known."""
        self._turns += 1
        self._input_tokens += usage.input_tokens
        self._output_tokens += usage.output_tokens
        if self._prices is None:
            return None
        cost = cost_usd(usage, self._prices)
        self._dollars += cost
        return cost


def cost_usd(usage: Usage, prices: Prices) -> float:
    """The cost of one reply: cached input is a part of the input, reasoning a part of the output."""
    cached = min(usage.cached_tokens, usage.input_tokens)
    fresh = usage.input_tokens - cached
    return (fresh * prices.input + cached * prices.cached_input + usage.output_tokens * prices.output) / 1e6

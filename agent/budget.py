"""Budgets: what a rollout, and a run as a whole, may spend, checked before spending.

A limit is reached once nothing is left of it, so the last reply and the last tool call may exceed it by what they cost.
"""

import threading
import time
from collections.abc import Callable

from agent.control import EndRollout
from runs.config import Limits, Prices, Spending
from runs.events import EndReason, Usage


class Account:
    """Spending counted against limits. Several threads may spend at once: what is reserved counts as spent."""

    def __init__(
        self,
        limits: Limits,
        prices: Prices | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        before: Spending = Spending(),  # noqa: B008
        whose: str = "",
    ) -> None:
        """`before` is what was spent by earlier processes; `whose` stands before "limit" in messages."""
        self.limits = limits
        self._prices = prices
        self._clock = clock
        self._began = clock()
        self._whose = whose
        self._lock = threading.Lock()
        self._spent = before.model_copy(update={"dollars": before.dollars or 0.0})
        self._reserved = Spending(dollars=0.0)

    @property
    def spent(self) -> Spending:
        """What has been spent up to now."""
        with self._lock:
            return self._spent_now()

    @property
    def left(self) -> Limits:
        """What is left of each limit, less what is reserved; None where there is no limit."""
        with self._lock:
            return self._left_now()

    def check(self) -> None:
        """Raise EndRollout if any limit is reached, so that no further reply is asked for."""
        with self._lock:
            self._require(EndReason.TURN_LIMIT, EndReason.TOKEN_LIMIT, EndReason.COST_LIMIT, *_WORKING)

    def check_work(self) -> None:
        """Raise EndRollout if the time is up, or the device's, so that no further tool call is carried out."""
        with self._lock:
            self._require(*_WORKING)

    def reserve(self, expected: Usage) -> None:
        """Like `check`, and in the same instant count a reply of an expected size; `settle` makes it the true one."""
        with self._lock:
            self._require(EndReason.TURN_LIMIT, EndReason.TOKEN_LIMIT, EndReason.COST_LIMIT, *_WORKING)
            self._reserved = _plus(self._reserved, expected, 1, self._cost(expected))

    def settle(self, expected: Usage | None, usage: Usage | None) -> None:
        """Put what a reply took, if there was one, in the place of what was reserved for it, if anything was."""
        with self._lock:
            if expected is not None:
                self._reserved = _plus(self._reserved, expected, -1, -self._cost(expected))
            if usage is not None:
                self._spent = _plus(self._spent, usage, 1, self._cost(usage))

    def charge_device(self, seconds: float) -> None:
        """Count for how long a tool call held the device."""
        with self._lock:
            total = self._spent.gpu_seconds + seconds
            self._spent = self._spent.model_copy(update={"gpu_seconds": total})

    def _cost(self, usage: Usage) -> float:
        return 0.0 if self._prices is None else cost_usd(usage, self._prices)

    def _spent_now(self) -> Spending:
        seconds = self._spent.seconds + self._clock() - self._began
        dollars = None if self._prices is None else self._spent.dollars
        return self._spent.model_copy(update={"seconds": seconds, "dollars": dollars})

    def _left_now(self) -> Limits:
        spent, reserved, limits = self._spent_now(), self._reserved, self.limits
        dollars = (self._spent.dollars or 0.0) + (reserved.dollars or 0.0)
        return Limits(
            turns=None if limits.turns is None else max(0, limits.turns - spent.turns - reserved.turns),
            tokens=None if limits.tokens is None else max(0, limits.tokens - spent.tokens - reserved.tokens),
            seconds=None if limits.seconds is None else max(0.0, limits.seconds - spent.seconds),
            dollars=None if limits.dollars is None else max(0.0, limits.dollars - dollars),
            gpu_seconds=None if limits.gpu_seconds is None else max(0.0, limits.gpu_seconds - spent.gpu_seconds),
        )

    def _require(self, *wanted: EndReason) -> None:
        left, limits = self._left_now(), self.limits
        named = {
            EndReason.TURN_LIMIT: (left.turns, f"{limits.turns} turns"),
            EndReason.TOKEN_LIMIT: (left.tokens, f"{limits.tokens} tokens"),
            EndReason.COST_LIMIT: (left.dollars, f"{limits.dollars} dollars"),
            EndReason.TIME_LIMIT: (left.seconds, f"{limits.seconds} seconds"),
            EndReason.GPU_LIMIT: (left.gpu_seconds, f"{limits.gpu_seconds} seconds of the device"),
        }
        for reason in wanted:
            remainder, limit = named[reason]
            if remainder is not None and remainder <= 0:
                raise EndRollout(reason, f"The {self._whose}limit of {limit} is reached.")


_WORKING = (EndReason.TIME_LIMIT, EndReason.GPU_LIMIT)


class RunBudget(Account):
    """The budget that all rollouts of a run share."""

    def __init__(
        self,
        limits: Limits,
        prices: Prices | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        before: Spending = Spending(),  # noqa: B008
    ) -> None:
        super().__init__(limits, prices, clock, before=before, whose="run's ")


class Budget:
    """The budget of one rollout, and its share in that of the run; both must allow what is spent."""

    def __init__(
        self,
        limits: Limits,
        prices: Prices | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        run: RunBudget | None = None,
        before: Spending = Spending(),  # noqa: B008
    ) -> None:
        self._prices = prices
        self._own = Account(limits, prices, clock, before=before)
        self._run = run
        self._expected: Usage | None = None

    @property
    def limits(self) -> Limits:
        """Of the rollout."""
        return self._own.limits

    @property
    def spent(self) -> Spending:
        """What the rollout has spent up to now."""
        return self._own.spent

    @property
    def left(self) -> Limits:
        """What is left of each limit of the rollout; None where there is none."""
        return self._own.left

    @property
    def spent_by_run(self) -> Spending | None:
        """What all rollouts have spent up to now; None where they share no budget."""
        return None if self._run is None else self._run.spent

    @property
    def seconds_left(self) -> float | None:
        """Until the rollout's or the run's time is up, whichever is first; None where neither is limited."""
        limits = [account.left.seconds for account in self._accounts]
        return min((seconds for seconds in limits if seconds is not None), default=None)

    def check(self) -> None:
        """Raise EndRollout if a limit is reached, so that no further reply is asked for."""
        for account in self._accounts:
            account.check()

    def check_work(self) -> None:
        """Raise EndRollout if the time is up, or the device's, so that no further tool call is carried out."""
        for account in self._accounts:
            account.check_work()

    def reserve(self, expected: Usage) -> None:
        """Raise EndRollout if a limit is reached, else set one reply aside; `charge` or `release` must follow."""
        self._own.reserve(expected)
        if self._run is not None:
            try:
                self._run.reserve(expected)
            except EndRollout:
                self._own.settle(expected, None)
                raise
        self._expected = expected

    def charge(self, usage: Usage) -> float | None:
        """Count one reply, in the place of a reserved one; returns its cost in dollars, None without prices."""
        self._settle(usage)
        return None if self._prices is None else cost_usd(usage, self._prices)

    def release(self) -> None:
        """Give back what was reserved, if a reply was and did not come."""
        if self._expected is not None:
            self._settle(None)

    def charge_device(self, seconds: float) -> None:
        """Count for how long a tool call held the device."""
        for account in self._accounts:
            account.charge_device(seconds)

    @property
    def _accounts(self) -> tuple[Account, ...]:
        return (self._own,) if self._run is None else (self._own, self._run)

    def _settle(self, usage: Usage | None) -> None:
        expected, self._expected = self._expected, None
        for account in self._accounts:
            account.settle(expected, usage)


def cost_usd(usage: Usage, prices: Prices) -> float:
    """The cost of one reply: cached input is a part of the input, reasoning a part of the output."""
    cached = min(usage.cached_tokens, usage.input_tokens)
    fresh = usage.input_tokens - cached
    return (fresh * prices.input + cached * prices.cached_input + usage.output_tokens * prices.output) / 1e6


def _plus(spent: Spending, usage: Usage, turns: int, dollars: float) -> Spending:
    """The spending with a reply more (`turns` 1) or less (-1)."""
    return spent.model_copy(
        update={
            "turns": spent.turns + turns,
            "input_tokens": spent.input_tokens + turns * usage.input_tokens,
            "output_tokens": spent.output_tokens + turns * usage.output_tokens,
            "dollars": (spent.dollars or 0.0) + dollars,
        }
    )

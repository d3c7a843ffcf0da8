"""Carrying out rollouts: one after the other here, or several at once in threads that asyncio looks after."""

import asyncio
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from runs.events import Ended

Work = Callable[[], Ended]
"""One rollout, from its start to its end; it ends soon after everybody is told to stop."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def one_by_one(next_work: Callable[[], Work | None]) -> list[Ended]:
    """Carry out rollouts in this thread until there are no more; returns their ends."""
    ends: list[Ended] = []
    while (work := next_work()) is not None:
        ends.append(work())
    return ends


def at_once(next_work: Callable[[], Work | None], parallel: int, stop: Callable[[], None]) -> list[Ended]:
    """Carry out rollouts until there are no more; returns their ends in the order in which they came.

    A signal (SIGINT, SIGTERM) has all of them end. Must be called from the main thread, where signals arrive.

    Args:
        next_work: the next rollout, None where there is none now; asked again whenever one has ended.
        parallel: the most that go on at once.
        stop: has every rollout end soon, and `next_work` answer None from then on; called more than once.

    Raises:
        Exception: what a rollout raised, after all others have ended.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        return asyncio.run(_at_once(next_work, parallel, stop))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _at_once(next_work: Callable[[], Work | None], parallel: int, stop: Callable[[], None]) -> list[Ended]:
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    ends: list[Ended] = []
    failure: Exception | None = None
    running: set[asyncio.Future[Ended]] = set()
    with ThreadPoolExecutor(parallel, thread_name_prefix="rollout") as threads:
        while True:
            try:
                while len(running) < parallel and (work := next_work()) is not None:
                    running.add(loop.run_in_executor(threads, work))
            except Exception as error:
                failure = failure or error
                stop()
            if not running:
                break
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                try:
                    ends.append(future.result())
                except Exception as error:
                    failure = failure or error
                    stop()
    if failure is not None:
        raise failure
    return ends

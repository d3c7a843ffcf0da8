"""Rollouts in threads of their own, told to stop while they wait."""

import threading
from collections.abc import Sequence

import pytest

from agent.interruption import InterruptibleClient, Interruption
from agent.model import Message, ModelReply, Patience, Retry, ToolDefinition
from tasks.errors import StoppedError

RETRY = Retry(attempt=1, error="busy", wait_s=1.0)


class BlockedModel:
    """Replies when it is released; before and after that it tells of a retry."""

    name = "blocked"

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.released = threading.Event()
        self.afterwards: BaseException | None = None
        self.over = threading.Event()

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:
        del messages, tools
        patience.on_retry(RETRY)
        self.asked.set()
        assert self.released.wait(60)
        try:
            patience.on_retry(RETRY)
        except BaseException as error:
            self.afterwards = error
            raise
        finally:
            self.over.set()
        return ModelReply(text="at last")


def test_a_call_gives_its_result_or_raises_what_it_raised() -> None:
    interruption = Interruption()
    assert interruption.wait_for(lambda: 6 * 7) == 42
    with pytest.raises(ZeroDivisionError):
        interruption.wait_for(lambda: 1 // 0)


def test_whoever_waits_is_told_to_stop_and_so_is_whoever_comes_later() -> None:
    interruption = Interruption()
    never = threading.Event()
    threading.Timer(0.05, interruption.stop).start()
    for _ in range(2):
        with pytest.raises(StoppedError):
            interruption.wait_for(lambda: never.wait(60))
    never.set()
    interruption.stop()
    assert interruption.stopping.is_set()


def test_a_reply_that_nobody_waits_for_any_more_writes_nothing_more() -> None:
    """The transcript has ended by then."""
    interruption, model, noted = Interruption(), BlockedModel(), list[Retry]()
    client = InterruptibleClient(model, interruption)
    assert client.name == "blocked"

    def stop() -> None:
        assert model.asked.wait(60)
        interruption.stop()

    threading.Thread(target=stop).start()
    with pytest.raises(StoppedError):
        client.query((), (), Patience(seconds=None, on_retry=noted.append))
    assert noted == [RETRY]
    model.released.set()
    assert model.over.wait(60)
    assert noted == [RETRY]
    assert isinstance(model.afterwards, StoppedError)


def test_a_reply_in_time_comes_through() -> None:
    model, noted = BlockedModel(), list[Retry]()
    model.released.set()
    reply = InterruptibleClient(model, Interruption()).query((), (), Patience(seconds=None, on_retry=noted.append))
    assert reply.text == "at last"
    assert noted == [RETRY, RETRY]

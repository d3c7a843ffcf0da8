"""How long a measurement is looked into: from its beginning to its end, and each one anew."""

import os
import threading
from types import SimpleNamespace
from typing import cast

import pytest

from tools.call_looks import MORE_LOOKS, MOST_LOOKS, CallLooks
from tools.code_origins import Origin, Place
from tools.code_shares import Tally
from tools.draws import Draws
from tools.workers import Worker


class Listed(CallLooks):
    """Looks that find what a test says."""

    def __init__(self) -> None:
        super().__init__(cast("Worker", SimpleNamespace(pid=os.getpid(), libraries={})), Draws("cpu"))
        self.finds = Origin.OWN
        self.begin_measurement()

    def _look_until(self, answered: threading.Event, tally: Tally) -> None:
        del answered
        tally.add([Place(self.finds, self.finds.value)])

    def calls(self, count: int, finds: Origin) -> None:
        self.finds = finds
        for _ in range(count):
            with self.into_call():
                pass


@pytest.fixture
def looks() -> Listed:
    looks = Listed()
    looks.note(1_000_000)
    return looks


def test_enough_is_seen_after_as_many_calls_as_are_wanted(looks: Listed) -> None:
    looks.calls(MOST_LOOKS - 1, Origin.OWN)
    before = looks.complete
    looks.calls(1, Origin.OWN)
    assert (before, looks.complete, looks.enough) == (False, True, True)
    assert looks.accusing is None


def test_a_library_that_comes_after_enough_was_seen_is_found(looks: Listed) -> None:
    """It was used from there on, where nobody looked any more."""
    looks.calls(MOST_LOOKS, Origin.OWN)
    looks.calls(1, Origin.LIBRARY)
    assert (looks.enough, looks.accusing) == (False, None)
    # Three of three: by luck once in 8,000 where one in twenty is allowed.
    looks.calls(2, Origin.LIBRARY)
    accusing = looks.accusing
    assert accusing is not None
    assert accusing.foreign == 3
    assert looks.tally.total == MOST_LOOKS + 3


def test_what_stays_unclear_ends_nevertheless(looks: Listed) -> None:
    looks.calls(MOST_LOOKS, Origin.OWN)
    looks.calls(1, Origin.LIBRARY)
    looks.calls(MORE_LOOKS * MOST_LOOKS - 1, Origin.OWN)
    assert looks.enough
    assert looks.accusing is None


def test_each_measurement_is_looked_into_anew(looks: Listed) -> None:
    """One that is repeated, because clocks disagreed, was not looked into at all."""
    looks.calls(MOST_LOOKS, Origin.OWN)
    looks.begin_measurement()
    assert (looks.complete, looks.enough) == (False, False)
    looks.calls(6, Origin.LIBRARY)
    looks.begin_measurement()
    looks.calls(MOST_LOOKS, Origin.OWN)
    # Six of six in the second are no luck, whatever the others show.
    assert looks.accusing is not None
    assert looks.accusing.foreign == 6

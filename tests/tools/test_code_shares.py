"""From looks to shares, and to an accusation that is no matter of luck."""

from fractions import Fraction
from math import comb

import pytest

from tools.code_origins import Origin, Place
from tools.code_shares import ALLOWED_SHARE, LUCK, Tally, at_least
from tools.library_compute import require_own_code
from tools.verdict import Verdict
from tools.workers import CandidateFault

OWN, NUMPY = Place(Origin.OWN, "the candidate's extension"), Place(Origin.LIBRARY, "libscipy_openblas.so")
COPYING, SPINNING = Place(Origin.PYTORCH, "libtorch_cpu.so"), Place(Origin.WAITING, "libgomp.so.1")


def tally(own: int, foreign: int) -> Tally:
    found = Tally()
    for place, count in ((OWN, own), (NUMPY, foreign)):
        for _ in range(count):
            assert found.add([place, SPINNING])
    return found


@pytest.mark.parametrize(("hits", "trials", "share"), [(2, 3, "1/2"), (0, 5, "1/20"), (5, 30, "1/20"), (30, 30, "1/2")])
def test_the_tail_of_the_binomial_distribution(hits: int, trials: int, share: str) -> None:
    chance = Fraction(share)
    exact = 1 - sum(comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(hits))
    assert at_least(hits, trials, float(chance)) == pytest.approx(float(exact), rel=1e-9)


def test_nobody_is_accused_of_a_stray_look() -> None:
    assert not tally(29, 1).accuses
    assert not tally(29, 1).unclear
    assert not tally(5, 1).accuses


def test_two_of_thirty_want_more_looks() -> None:
    found = tally(28, 2)
    assert found.unclear
    assert not found.accuses


def test_a_clear_share_is_accused() -> None:
    """A quarter of the looks; three of the fewest, six, are too many to be luck, too: 0.002 for a twentieth."""
    with pytest.raises(CandidateFault, match=r"in 8 of 30 looks .* libscipy_openblas.so \(8x\)") as raised:
        require_own_code(tally(22, 8))
    assert raised.value.verdict is Verdict.LIBRARY_COMPUTE


def test_who_keeps_within_what_is_allowed_is_accused_once_in_a_thousand_at_most() -> None:
    accused = next(hits for hits in range(31) if tally(30 - hits, hits).accuses)
    chance = Fraction(ALLOWED_SHARE).limit_denominator(100)
    tail = sum(comb(30, k) * chance**k * (1 - chance) ** (30 - k) for k in range(accused, 31))
    more = sum(comb(30, k) * chance**k * (1 - chance) ** (30 - k) for k in range(accused - 1, 31))
    assert tail <= LUCK < more


def test_own_threads_that_spin_beside_a_library_hide_nothing() -> None:
    found = Tally()
    found.add([OWN, OWN, NUMPY])
    assert found.foreign == 1


def test_a_look_in_which_nothing_computes_counts_for_nothing() -> None:
    found = Tally()
    assert not found.add([])
    assert not found.add([SPINNING])
    assert found.shares() is None


def test_a_process_that_hides_is_no_better_than_a_library() -> None:
    found = tally(10, 0)
    for _ in range(20):
        found.add([], hidden=True)
    with pytest.raises(CandidateFault, match="did not let itself be looked at in 20 of 30 looks"):
        require_own_code(found)


def test_shares_add_up_to_one() -> None:
    found = tally(6, 2)
    found.add([COPYING])
    found.add([COPYING, Place(Origin.RUNTIME, "libc.so.6")])
    shares = found.shares()
    assert shares is not None
    assert (shares.looks, shares.own, shares.pytorch, shares.runtime, shares.library) == (10, 0.6, 0.2, 0.0, 0.2)

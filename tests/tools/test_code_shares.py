"""From looks to an accusation that is no matter of luck."""

from fractions import Fraction
from math import comb

import pytest

from tools.code_origins import Origin, Place
from tools.code_shares import ALLOWED_SHARE, LUCK, Tally
from tools.library_compute import require_own_code
from tools.verdict import Verdict
from tools.workers import CandidateFault

LOOKS = 30


def tally(foreign: int) -> Tally:
    found = Tally()
    for number in range(LOOKS):
        blas = number < foreign
        found.add([Place(Origin.LIBRARY, "libopenblas.so") if blas else Place(Origin.OWN, "own")])
    return found


def test_a_clear_share_is_library_compute_and_told() -> None:
    with pytest.raises(CandidateFault, match=r"in 12 of 30 looks .* libopenblas.so \(12x\)") as raised:
        require_own_code(tally(12))
    assert raised.value.verdict is Verdict.LIBRARY_COMPUTE


def test_who_keeps_within_what_is_allowed_is_accused_once_in_a_thousand_at_most() -> None:
    """By the tail of the binomial distribution, in whole numbers."""
    chance = Fraction(ALLOWED_SHARE).limit_denominator(1000)

    def tail(hits: int) -> Fraction:
        return sum(
            (comb(LOOKS, k) * chance**k * (1 - chance) ** (LOOKS - k) for k in range(hits, LOOKS + 1)), Fraction(0)
        )

    accused = next(hits for hits in range(LOOKS + 1) if tally(hits).accuses)
    assert tail(accused) <= LUCK < tail(accused - 1)

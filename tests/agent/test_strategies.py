"""Strategies as what they are: functions from the rollouts so far to the next start."""

import itertools

import pytest
from lineages import past

from agent.prompt import opening
from agent.strategies.choosing import configured, strategy_of
from agent.strategies.evolve import MIGRATION_EVERY
from agent.strategies.floor import is_near
from agent.strategies.strategy import MOST_LESSONS, Start
from runs.origin import StrategyConfig
from runs.strategy_name import StrategyName
from tasks.errors import UsageError
from tools.candidate import Candidate

THREADS = "#pragma omp parallel for\n"
TENSOR_CORES = "nvcuda::wmma::mma_sync(d, a, b, c);\n__shared__ float tile[64];\n"


def config(name: StrategyName, rollouts: int = 100, islands: int = 1, seed: int = 0) -> StrategyConfig:
    return StrategyConfig(name=name, rollouts=rollouts, islands=islands, seed=seed)


def parents(start: Start | None) -> list[str]:
    assert start is not None
    assert start.origin.parents == tuple(parent.candidate for parent in start.parents)
    return [parent.text for parent in start.parents]


def test_single_starts_once_whatever_became_of_it() -> None:
    single = strategy_of(config(StrategyName.SINGLE))
    assert parents(single.next_start(())) == []
    assert single.next_start([past("rollout-1")]) is None
    assert single.next_start([past("rollout-1", ("wrong", None))]) is None


def test_best_of_starts_all_afresh_and_at_once() -> None:
    best_of = strategy_of(config(StrategyName.BEST_OF, rollouts=3))
    going_on = [past(f"rollout-{number}", ("good", 2.0)) for number in range(3)]
    for count in range(3):
        start = best_of.next_start(going_on[:count])
        assert parents(start) == [] and start is not None and start.lessons == ()
    assert best_of.next_start(going_on) is None


def test_refine_starts_from_the_best_right_candidate_of_all_rollouts() -> None:
    refine = strategy_of(config(StrategyName.REFINE, rollouts=4))
    before = [past("rollout-1", ("a", 1.5), ("b", 3.0)), past("rollout-2", ("c", 2.0), ("d", None))]
    start = refine.next_start(before)
    assert parents(start) == ["b"]
    assert start is not None
    assert [lesson.idea for lesson in start.lessons] == [f"idea of {text}" for text in "abcd"]
    assert refine.next_start([*before, *before]) is None


def test_a_candidate_that_was_found_wrong_after_it_was_timed_is_no_parent() -> None:
    refine = strategy_of(config(StrategyName.REFINE))
    assert parents(refine.next_start([past("rollout-1", ("fast", 9.0), ("slow", 1.1), ("fast", None))])) == ["slow"]


@pytest.mark.parametrize("name", [StrategyName.REFINE, StrategyName.EVOLVE])
def test_what_another_rollout_found_wrong_is_no_parent_again(name: StrategyName) -> None:
    """Its own rollout only timed it; the one that began with it verified it."""
    before = [past("rollout-1", ("fast", 9.0), ("slow", 1.1), island=0), past("rollout-2", ("fast", None), island=0)]
    assert parents(strategy_of(config(name)).next_start(before)) == ["slow"]
    assert not is_near(before, 1e6 / 9.0)


def test_refine_begins_afresh_while_nothing_is_right_but_tells_what_failed() -> None:
    start = strategy_of(config(StrategyName.REFINE)).next_start([past("rollout-1", ("x", None))])
    assert parents(start) == []
    assert start is not None
    said = opening(start)
    assert "incorrect: idea of x" in said and "Nothing right was timed so far" in said


def test_lessons_are_the_last_ones_and_each_text_comes_once() -> None:
    tried = [(f"text {number}", None) for number in range(MOST_LESSONS)]
    start = strategy_of(config(StrategyName.REFINE)).next_start(
        [past("rollout-1", ("again", 1.0), *tried), past("rollout-2", ("again", 1.0))]
    )
    assert start is not None
    ideas = [lesson.idea for lesson in start.lessons]
    assert len(ideas) == MOST_LESSONS
    assert (ideas[0], ideas[-1]) == ("idea of text 1", "idea of again")


def test_evolve_goes_round_its_islands_and_shows_each_only_its_own() -> None:
    evolve = strategy_of(config(StrategyName.EVOLVE, islands=3))
    before = [past(f"rollout-{number}", (f"of {number}", 1.0 + number), island=number) for number in range(3)]
    for number in range(3):
        start = evolve.next_start(before[:number])
        assert start is not None and start.origin.island == number and start.parents == ()
    again = evolve.next_start(before)
    assert again is not None and again.origin.island == 0
    assert parents(again) == ["of 0"]


def test_evolve_takes_a_second_parent_of_another_approach_however_slow() -> None:
    evolve = strategy_of(config(StrategyName.EVOLVE))
    bred = past("rollout-1", (THREADS + "a", 5.0), (THREADS + "b", 4.9), (TENSOR_CORES, 1.1), ("plain", 2.0), island=0)
    seen = set()
    for count in range(1, 40):
        chosen = parents(evolve.next_start([bred] + [past(f"rollout-{n}", island=0) for n in range(1, count)]))
        assert len(chosen) == 2
        assert THREADS + "b" not in chosen, "of two with the same approach only the faster one counts"
        if chosen[0] != TENSOR_CORES:
            # It differs from both others in more ways than they from each other.
            assert chosen[1] == TENSOR_CORES
        seen.add(chosen[0])
    assert seen == {THREADS + "a", TENSOR_CORES, "plain"}


def test_evolve_prefers_fast_first_parents() -> None:
    bred = past("rollout-1", (THREADS, 5.0), ("plain", 2.0), (TENSOR_CORES, 1.0), island=0)
    first = [parents(strategy_of(config(StrategyName.EVOLVE, seed=seed)).next_start([bred]))[0] for seed in range(700)]
    # By hand: weights 1, 1/2 and 1/4, so of 700 draws 400, 200 and 100; four standard deviations are 53, 48 and 38.
    assert first.count(THREADS) == pytest.approx(400, abs=53)
    assert first.count("plain") == pytest.approx(200, abs=48)
    assert first.count(TENSOR_CORES) == pytest.approx(100, abs=38)


def test_islands_seldom_see_the_best_of_the_one_before() -> None:
    evolve = strategy_of(config(StrategyName.EVOLVE, islands=2))
    rollouts = [past("rollout-1", ("own", 1.0), island=0), past("rollout-2", (THREADS + "fast", 9.0), island=1)]
    saw = []
    for number in itertools.count(2):
        start = evolve.next_start(rollouts)
        assert start is not None
        if start.origin.island == 0:
            saw.append(THREADS + "fast" in parents(start))
        if number == 4 * MIGRATION_EVERY:
            break
        rollouts.append(past(f"rollout-{number + 1}", island=start.origin.island))
    # Island 0's starts are its second, third and so on; every fourth of all its starts sees the other.
    assert saw == [(started % MIGRATION_EVERY) == MIGRATION_EVERY - 1 for started in range(1, len(saw) + 1)]
    assert sum(saw) == 2


@pytest.mark.parametrize("name", list(StrategyName))
def test_the_same_transcripts_get_the_same_answer(name: StrategyName) -> None:
    before = [past("rollout-1", (THREADS, 5.0), ("plain", 2.0), island=0), past("rollout-2", ("c", 1.0), island=0)]
    assert strategy_of(config(name)).next_start(before) == strategy_of(config(name)).next_start(before)


def test_an_opening_holds_parents_whole_with_figures_profile_and_lessons() -> None:
    text = "# {{ no template }}\n```\nclass ModelNew: ...\n"
    before = [past("rollout-1", (text, 4.0), ("worse", None), profiles={text: "one kernel, 90 % of the time"})]
    start = strategy_of(config(StrategyName.REFINE)).next_start(before)
    assert start is not None
    said = opening(start)
    assert f"`{Candidate(text).id[:12]}`, 250 us, 4x the fastest baseline\n\n````python\n{text.strip()}\n````" in said
    assert "one kernel, 90 % of the time" in said
    assert f"- `{Candidate('worse').id[:12]}`: incorrect: idea of worse" in said
    assert "knows" not in said and "know this candidate by id already" in said


@pytest.mark.parametrize(("median_us", "near"), [(100.1, False), (100.0, True), (50.0, True)])
def test_near_the_floor_is_nine_tenths_of_its_rate(median_us: float, near: bool) -> None:
    before = [past("rollout-1", ("x", 1000.0 / median_us), ("wrong", None))]
    assert is_near(before, 90_000.0) is near
    assert not is_near(before, None)
    assert not is_near([past("rollout-1", ("wrong", None))], 90_000.0)


def test_options_mean_a_single_rollout_or_the_best_of_several() -> None:
    assert (configured(None, None, 1).name, configured(None, None, 1).rollouts) == (StrategyName.SINGLE, 1)
    assert configured(None, 3, 2) == StrategyConfig(name=StrategyName.BEST_OF, rollouts=3, parallel=2)
    assert configured(StrategyName.EVOLVE, None, 1).rollouts == 12
    with pytest.raises(UsageError, match="best-of, refine or evolve"):
        configured(StrategyName.SINGLE, 2, 1)

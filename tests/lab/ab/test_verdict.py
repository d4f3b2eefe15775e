"""Simulations confirm the verdict's error rate: a false `better` or `worse` at most once in twenty."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dovetail_lab.ab.design import Arm, Design
from dovetail_lab.ab.paired import holm, sign_flip_p, sign_flip_ps, t_interval
from dovetail_lab.ab.sequential import deciding_looks, look_sizes, overall_p, pocock_level
from dovetail_lab.ab.verdict import compare, decide, equivalence_p

TRIALS = 2000
ERROR = 3 * math.sqrt(0.05 * 0.95 / TRIALS)
"""Three standard deviations of a simulated rate of 5 %."""


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.normal(0, 1, shape)


def bimodal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Runs that either work or collapse."""
    return rng.normal(0, 0.1, shape) + (rng.random(shape) < 0.3)


def lognormal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.lognormal(0, 1, shape)


@pytest.mark.parametrize("pairs", [6, 10])
@pytest.mark.parametrize("draw", [normal, bimodal, lognormal])
def test_type_one_error(draw, pairs: int) -> None:
    rng = np.random.default_rng(pairs)
    seeds = draw(rng, (TRIALS, pairs))  # what both arms share
    differences = (seeds + draw(rng, (TRIALS, pairs))) - (seeds + draw(rng, (TRIALS, pairs)))
    verdicts = [decide(d.mean(), sign_flip_p(d), equivalence_p(d, 0.0)) for d in differences]
    assert np.mean([v in ("better", "worse") for v in verdicts]) <= 0.05 + ERROR


def test_pocock_looks_keep_the_type_one_error() -> None:
    looks, level = look_sizes(12, 3), pocock_level(3)
    draws = np.random.default_rng(0).normal(0, 1, (TRIALS, 12))
    rejected = [any(sign_flip_p(d[:n]) <= level for n in looks) for d in draws]
    assert np.mean(rejected) <= 0.05 + ERROR
    naive = [any(sign_flip_p(d[:n]) <= 0.05 for n in looks) for d in draws[:500]]
    assert np.mean(naive) > 0.05 + ERROR  # what looking without a correction would do


def test_looks_that_cannot_decide_are_not_paid_for() -> None:
    """Two and four of eight pairs cannot reach a p-value below the level; six can, if other looks do not use up level."""
    assert deciding_looks(look_sizes(8, 4), 0.05) == (6, 8)
    assert deciding_looks(look_sizes(12, 4), 0.05) == (9, 12)
    assert deciding_looks(look_sizes(40, 4), 0.05) == (10, 20, 30, 40)
    assert deciding_looks((2, 4), 0.05) == (4,)
    assert deciding_looks(look_sizes(12, 4), 0.05 / 8) == (12,), "eight arms need more"
    arms = tuple(Arm(name=name) for name in "ab")
    assert Design(arms=arms, metric="m", seeds=tuple(range(8)), looks=4).look_sizes == (6, 8)


def test_looks_that_are_left_keep_the_type_one_error_and_spend_it() -> None:
    sizes = deciding_looks(look_sizes(12, 4), 0.05)
    level = pocock_level(sizes)
    assert level > pocock_level(4)
    assert level > pocock_level(2), "nine of twelve pairs are most of the evidence"
    draws = np.random.default_rng(0).normal(0, 1, (3 * TRIALS, 12))
    rejected = np.any([sign_flip_ps(draws[:, :n]) <= level for n in sizes], axis=0)
    assert 0.04 <= rejected.mean() <= 0.05 + ERROR / math.sqrt(3)


@pytest.mark.slow
def test_looks_and_arms_together_keep_the_type_one_error() -> None:
    """Two arms are compared with one control at three looks; any false winner at any look counts."""
    trials, rng, false = 700, np.random.default_rng(1), 0
    for _ in range(trials):
        control, arms = rng.normal(0, 1, 9), rng.normal(0, 1, (2, 9))
        looks = [holm(np.array([overall_p(sign_flip_p((arm - control)[:n]), 3) for arm in arms])) for n in (5, 7, 9)]
        false += min(map(min, looks)) <= 0.05
    assert false / trials <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize(("looks", "p"), [(1, 0.02), (3, 0.02), (4, 0.0007), (4, 0.4)])
def test_the_overall_p_undoes_the_level_of_a_look(looks: int, p: float) -> None:
    assert pocock_level(looks, overall_p(p, looks)) == pytest.approx(p, rel=1e-3)


@pytest.mark.parametrize("pairs", [6, 10])
@pytest.mark.parametrize("side", [-1, 1])
def test_equivalence_is_claimed_wrongly_at_most_once_in_twenty(pairs: int, side: int) -> None:
    draws = np.random.default_rng(pairs).normal(side * 1.0, 0.3, (TRIALS, pairs))
    assert np.mean([equivalence_p(d, 1.0) <= 0.05 for d in draws]) <= 0.05 + ERROR


def test_equivalence_is_the_interval_at_twice_the_level_within_the_band() -> None:
    for seed in range(40):
        d = np.random.default_rng(seed).normal(0.0, 0.5, 8)
        interval = t_interval(d, 0.9)
        assert (equivalence_p(d, 0.4) <= 0.05) == (interval.low > -0.4 and interval.high < 0.4)


def test_few_equal_pairs_prove_no_equivalence() -> None:
    assert compare(np.zeros(3), {"arm": np.zeros(3)}, min_effect=0.1)["arm"].verdict == "undecided"
    assert compare(np.zeros(5), {"arm": np.zeros(5)}, min_effect=0.1)["arm"].verdict == "equivalent"
    assert equivalence_p(np.full(8, 0.2), 0.1) == 1.0


def test_looks_cost_evidence() -> None:
    control = np.linspace(0.4, 0.6, 8)
    arms = {"arm": control + 0.1 + np.linspace(-0.02, 0.02, 8)}
    once, often = (compare(control, arms, looks=looks)["arm"] for looks in (1, 4))
    assert once.p == often.p == 2 / 256
    assert often.adjusted_p > 2.5 * once.adjusted_p
    assert often.confidence == pytest.approx(1 - pocock_level(4))
    assert often.t.low < once.t.low
    assert often.verdict == "better"


@pytest.mark.parametrize(("looks", "bound"), [(2, 2.178), (4, 2.361), (5, 2.413), (10, 2.555)])
def test_pocock_levels_agree_with_the_published_bounds(looks: int, bound: float) -> None:
    """Jennison and Turnbull 2000, table 2.1."""
    assert pocock_level(looks) == pytest.approx(math.erfc(bound / math.sqrt(2)), rel=4e-3)


def test_a_clear_win_a_clear_loss_and_a_tie() -> None:
    rng = np.random.default_rng(0)
    control = rng.normal(0.5, 0.05, 8)
    noise = rng.normal(0, 0.005, (3, 8))
    arms = {"up": control + 0.1 + noise[0], "down": control - 0.1 + noise[1], "same": control + noise[2]}
    found = compare(control, arms, min_effect=0.02)
    assert [c.verdict for c in found.values()] == ["better", "worse", "equivalent"]
    assert found["up"].correlation > 0.95
    assert found["up"].adjusted_p == pytest.approx(3 * 2 / 256)
    turned = compare(control, {"up": arms["up"]}, higher_is_better=False, min_effect=0.02)
    assert turned["up"].verdict == "worse"
    assert turned["up"].mean == pytest.approx(-found["up"].mean)


def test_a_real_difference_below_the_minimum_effect_is_equivalent() -> None:
    control = np.linspace(0.4, 0.6, 8)
    found = compare(control, {"arm": control + 0.004 + np.linspace(-1e-3, 1e-3, 8)}, min_effect=0.02)["arm"]
    assert found.p < 0.05
    assert found.verdict == "equivalent"
    without = compare(control, {"arm": control + 0.004 + np.linspace(-1e-3, 1e-3, 8)})["arm"]
    assert without.verdict == "better"


def test_five_pairs_never_decide_for_an_arm() -> None:
    control = np.zeros(5)
    assert compare(control, {"arm": control + np.linspace(0.9, 1.1, 5)})["arm"].verdict == "undecided"


def test_a_crashed_run_leaves_its_pair_only() -> None:
    control = np.array([0.1, 0.2, math.nan, 0.3])
    found = compare(control, {"arm": np.array([0.2, math.nan, 0.5, 0.4]), "whole": np.full(4, 0.5)})
    assert found["arm"].pairs == 2
    assert found["arm"].mean == pytest.approx(0.1)
    assert found["whole"].pairs == 3
    with pytest.raises(ValueError, match="arm lost and the control have finished no seed in common"):
        compare(control, {"lost": np.full(4, math.nan)})

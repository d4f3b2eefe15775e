"""Seeds and prompts as two sources of uncertainty."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dovetail_lab.ab.paired import Interval, t_interval
from dovetail_lab.ab.prompts import flips, two_way_interval, variance_shares


def table(seeds: int, prompts: int, *, of_seeds: float, of_prompts: float, rest: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows, columns = rng.normal(0, of_seeds, (seeds, 1)), rng.normal(0, of_prompts, (1, prompts))
    return rows + columns + rng.normal(0, rest, (seeds, prompts))


def test_shares_name_the_source() -> None:
    assert variance_shares(table(8, 200, of_seeds=1.0, of_prompts=0.1, rest=0.1)).seeds > 0.95
    assert variance_shares(table(50, 10, of_seeds=0.01, of_prompts=1.0, rest=0.1)).prompts > 0.9
    noise = variance_shares(table(8, 50, of_seeds=0.0, of_prompts=0.0, rest=1.0))
    assert noise.rest > 0.4
    assert noise.seeds + noise.prompts + noise.rest == pytest.approx(1.0)


def test_shares_of_nothing() -> None:
    assert variance_shares(np.zeros((3, 4))).seeds == 0.0
    assert variance_shares(np.ones((1, 4))).rest == 0.0


@pytest.mark.parametrize("seeds", [6, 8, 10])
@pytest.mark.parametrize(
    ("of_seeds", "of_prompts", "rest"),
    [(1.0, 0.05, 0.05), (0.3, 0.3, 0.3), (0.0, 0.0, 1.0), (0.05, 0.05, 1.0)],
    ids=["seeds dominate", "all alike", "noise alone", "noise dominates"],
)
def test_the_interval_covers_the_mean_over_other_seeds_and_other_prompts(seeds, of_seeds, of_prompts, rest) -> None:
    """It does in 95 % of 2,000 simulations, up to their error; a percentile bootstrap reaches 0.86 and 0.99."""
    scale = {"of_seeds": of_seeds, "of_prompts": of_prompts, "rest": rest}
    found = [two_way_interval(table(seeds, 40, **scale, seed=seed)) for seed in range(2000)]
    assert 0.93 <= np.mean([each.low < 0.0 < each.high for each in found]) <= 0.975


def test_seeds_alone_make_it_the_paired_t_interval_and_nothing_makes_it_narrower() -> None:
    rows = np.random.default_rng(0).normal(0, 1, 8)
    whole, alone = two_way_interval(np.repeat(rows[:, None], 20, axis=1)), t_interval(rows)
    assert (whole.low, whole.high) == pytest.approx((alone.low, alone.high))
    for seed in range(200):
        data = table(3, 15, of_seeds=0.1, of_prompts=0.5, rest=0.5, seed=seed)
        whole, alone = two_way_interval(data), t_interval(data.mean(1))
        assert whole.high - whole.low >= (alone.high - alone.low) * (1 - 1e-12)


def test_it_is_wider_than_the_seeds_alone_where_prompts_count() -> None:
    data = table(10, 20, of_seeds=0.1, of_prompts=1.0, rest=0.1)
    whole, alone = two_way_interval(data), t_interval(data.mean(1))
    assert whole.high - whole.low > 2 * (alone.high - alone.low)


def test_one_seed_has_no_interval() -> None:
    assert two_way_interval(np.ones((1, 5))) == Interval(-math.inf, math.inf)


def test_flips_count_each_prompt_once() -> None:
    control = np.array([[1, 0, 0, 1], [1, 0, 1, 1]], float)
    arm = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], float)
    found = flips(control, arm)
    assert (found.gained, found.lost, found.same) == (2, 1, 1)
    assert found.p == 1.0
    assert flips(control, control).p == 1.0

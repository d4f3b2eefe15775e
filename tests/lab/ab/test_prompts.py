"""Seeds and prompts as two sources of uncertainty."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail_lab.ab.prompts import flips, hierarchical_interval, variance_shares


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


def test_the_interval_covers_other_seeds_and_other_prompts() -> None:
    hits = 0
    for seed in range(60):
        found = hierarchical_interval(table(10, 60, of_seeds=0.5, of_prompts=0.5, rest=0.5, seed=seed))
        hits += found.low < 0.0 < found.high
    assert hits >= 51  # 85 % at least: the percentile interval is a little narrow at ten seeds


def test_it_is_wider_than_the_seeds_alone() -> None:
    data = table(10, 20, of_seeds=0.1, of_prompts=1.0, rest=0.1)
    whole, seeds_only = hierarchical_interval(data), hierarchical_interval(np.repeat(data.mean(1)[:, None], 20, axis=1))
    assert whole.high - whole.low > 2 * (seeds_only.high - seeds_only.low)


def test_flips_count_each_prompt_once() -> None:
    control = np.array([[1, 0, 0, 1], [1, 0, 1, 1]], float)
    arm = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], float)
    found = flips(control, arm)
    assert (found.gained, found.lost, found.same) == (2, 1, 1)
    assert found.p == 1.0
    assert flips(control, control).p == 1.0

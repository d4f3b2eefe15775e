"""The simulated programs against closed forms and a published table."""

import numpy as np
import pytest

from dovetail_lab.simulate.programs import Rounds, simulate


def test_without_staleness_a_step_is_the_longest_completion_and_the_update():
    """E[max of n exponentials] is the harmonic number, so E[max] + T_update is known."""
    longest = np.random.default_rng(0).exponential(size=(40_000, 8)).max(axis=1)
    found = simulate(longest, np.full(len(longest), 0.5), 0)
    assert found.step == pytest.approx(sum(1 / i for i in range(1, 9)) + 0.5, rel=0.01)
    assert found.staleness == 0


@pytest.mark.parametrize("k", [0, 1, 2, 4])
def test_balanced_exponential_stages_are_busy_for_k_plus_1_of_k_plus_2(k):
    sampling, training = np.random.default_rng(1).exponential(size=(2, 100_000))
    found = simulate(sampling, training, k)
    assert 1 - found.idle_trainer == pytest.approx((k + 1) / (k + 2), rel=0.02)
    assert found.staleness == pytest.approx(k, rel=0.01)


def test_the_published_stages_of_verl():
    """458 s of generation beside 108 + 337 s of scoring and updates: max(458, 445) s; 520 s were measured."""
    steps = 2_000
    ahead = simulate(np.full(steps, 458.0), np.full(steps, 108.0 + 337.0), 1)
    assert ahead.step == pytest.approx(458, rel=0.002)
    assert simulate(np.full(steps, 458.0), np.full(steps, 445.0), 0).step == pytest.approx(903)


def test_the_slower_program_never_waits_in_the_long_run():
    found = simulate(np.full(1_000, 1.0), np.full(1_000, 4.0), 1)
    assert found.idle_trainer == pytest.approx(0, abs=0.001)
    assert found.idle_sampler == pytest.approx(0.75, abs=0.001)


def test_rounds_are_what_comes_in_and_goes_out():
    """Nothing is dropped, so rounds yield as many groups as steps use; of rounds of one group the first good one is."""
    rng = np.random.default_rng(0)
    rounds, ages = Rounds(wanted=8, more=5, passing=0.3, most=50).drawn(20_000, rng)
    assert rounds.mean() == pytest.approx(8 / (0.3 * 13), rel=0.01)
    assert 0 < ages.mean() < 1
    cut, _ = Rounds(wanted=1, more=None, passing=0.3, most=4).drawn(40_000, rng)
    assert cut.mean() == pytest.approx((1 - 0.7**4) / 0.3, rel=0.01)


def test_groups_that_waited_are_staler_and_save_every_second_round():
    """With twice the prompts and no filter to speak of, every second step samples nothing."""
    rounds, ages = Rounds(wanted=4, more=4, passing=1.0, most=4).drawn(2_000, np.random.default_rng(0))
    found = simulate(rounds * 2.0, np.full(2_000, 1.0), 0, ages)
    assert found.step == pytest.approx(2.0)
    assert found.staleness == pytest.approx(0.5)
    assert simulate(rounds * 2.0, np.full(2_000, 1.0), 2, ages).staleness == pytest.approx(2.5, abs=0.01)

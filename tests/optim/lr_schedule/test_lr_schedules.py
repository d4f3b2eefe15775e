"""Learning-rate schedules: the factor of the peak rate, step by step."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import dovetail


def factors(name, total, **params):
    schedule = dovetail.get("lr_schedule", name)
    return [float(schedule(step=jnp.int32(n), total_steps=jnp.int32(total), **params)) for n in range(total + 1)]


@pytest.mark.parametrize("name", dovetail.names("lr_schedule"))
def test_a_warm_up_of_steps_is_one_of_their_share(name):
    """Four of forty steps are a tenth; the number does not change when the run is longer, the share does."""
    by_steps = factors(name, 40, warmup_steps=4)
    np.testing.assert_allclose(by_steps, factors(name, 40, warmup_ratio=0.1), rtol=1e-6)
    np.testing.assert_allclose(by_steps[:4], [0.25, 0.5, 0.75, 1.0], rtol=1e-6)
    np.testing.assert_allclose(factors(name, 80, warmup_steps=4)[:4], [0.25, 0.5, 0.75, 1.0], rtol=1e-6)
    assert factors(name, 80, warmup_ratio=0.1)[3] == 0.5
    assert factors(name, 10, warmup_steps=0, warmup_ratio=0.5)[0] == 1.0, "no steps are none, whatever the share"


def test_stable_then_decay_by_hand():
    """Ten steps, the last four of which fall from 1 to 0.2."""
    found = factors("wsd", 10, warmup_steps=2, decay_ratio=0.4, end=0.2)
    np.testing.assert_allclose(found, [0.5, 1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2], rtol=1e-6)
    assert factors("wsd", 10, warmup_steps=0, decay_ratio=0.0) == [1.0] * 11


def test_inverse_square_root_by_hand():
    np.testing.assert_allclose(
        factors("inverse_sqrt", 16, warmup_steps=4)[4::4], [1, 0.5**0.5, (1 / 3) ** 0.5, 0.5], rtol=1e-6
    )


@pytest.mark.parametrize(("name", "middle"), [("warmup_cosine", 0.55), ("warmup_linear", 0.55)])
def test_half_way_between_the_warm_up_and_the_end(name, middle):
    found = factors(name, 12, warmup_steps=2, end=0.1)
    np.testing.assert_allclose([found[2], found[7], found[12]], [1.0, middle, 0.1], rtol=1e-6)

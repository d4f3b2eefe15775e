"""KL controller `adaptive`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dovetail.errors import ConfigError
from dovetail_loss.kl_controller.adaptive import Adaptive


def after(controller: Adaptive, kl: float, samples: int) -> float:
    state = controller.update(controller.init(0.2), jnp.float32(kl), jnp.int32(samples))
    return float(controller.coef(state))


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        (6.0, 0.2),  # on target
        (6.6, 0.2 * (1 + 0.1 * 256 / 10_000)),  # error 0.1
        (60.0, 0.2 * (1 + 0.2 * 256 / 10_000)),  # bounded
        (0.0, 0.2 * (1 - 0.2 * 256 / 10_000)),  # bounded
    ],
)
def test_by_hand(kl: float, expected: float) -> None:
    np.testing.assert_allclose(after(Adaptive(target=6.0, horizon=10_000.0), kl, 256), expected, rtol=1e-6)


def test_it_settles_where_the_divergence_meets_the_target() -> None:
    controller = Adaptive(target=0.1, horizon=200.0)
    state = controller.init(1.0)
    for _ in range(400):
        kl = 0.02 / controller.coef(state)  # a policy that a larger penalty holds closer
        state = controller.update(state, kl, jnp.int32(64))
    np.testing.assert_allclose(controller.coef(state), 0.2, rtol=1e-3)


def test_an_update_over_nothing_changes_nothing() -> None:
    assert after(Adaptive(), float("nan"), 0) == np.float32(0.2)


@pytest.mark.parametrize("field", ["target", "horizon"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_numbers_that_make_no_sense_are_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"Adaptive\.{field}: expected float > 0, got {value}"):
        Adaptive(**{field: value})

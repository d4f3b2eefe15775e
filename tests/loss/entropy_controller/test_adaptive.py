"""Entropy controller `adaptive`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError
from dovetail_loss.entropy_controller.adaptive import Adaptive


def follow(controller: Adaptive, entropies: list[float], coef: float = 0.0) -> list[float]:
    state, seen = controller.init(coef), []
    for entropy in entropies:
        state = controller.update(state, jnp.float32(entropy), jnp.int32(64))
        seen.append(float(controller.coef(state)))
    return seen


def test_by_hand() -> None:
    controller = Adaptive(target=0.2, step_size=0.01)
    # rises below the target, rests above it while c falls, and comes back where c was left
    seen = follow(controller, [0.1, 0.1, 0.1, 0.3, 0.1, 0.2])
    np.testing.assert_allclose(seen, [0.01, 0.02, 0.03, 0.0, 0.03, 0.02], atol=1e-8)


def test_c_does_not_fall_below_zero() -> None:
    assert follow(Adaptive(target=0.2, step_size=0.01), [0.5] * 10 + [0.1])[-1] == pytest.approx(0.01)


def test_it_starts_at_the_coefficient_of_the_config() -> None:
    controller = Adaptive()
    assert controller.coef(controller.init(0.25)) == 0.25


def test_an_update_over_nothing_changes_nothing() -> None:
    controller = Adaptive()
    state = controller.update(controller.init(0.1), jnp.float32(jnp.nan), jnp.int32(0))
    assert controller.coef(state) == np.float32(0.1)


def test_it_can_be_traced() -> None:
    @jax.jit
    def compiled(target: jax.Array, entropy: jax.Array) -> jax.Array:
        controller = Adaptive(target=target, step_size=0.5)  # pyright: ignore[reportArgumentType] - traced
        return controller.coef(controller.update(controller.init(0.0), entropy, jnp.int32(1)))

    assert compiled(jnp.float32(0.2), jnp.float32(0.1)) == 0.5
    assert compiled(jnp.float32(0.2), jnp.float32(0.3)) == 0.0


@pytest.mark.parametrize("field", ["target", "step_size"])
def test_numbers_that_make_no_sense_are_refused(field: str) -> None:
    settings = ["train.entropy_controller=adaptive", f"entropy_controller.adaptive.{field}=0.0"]
    with pytest.raises(ConfigError, match=rf"entropy_controller\.adaptive\.{field}.* > 0, got 0.0"):
        load(None, settings)


def test_fixed_is_the_one_of_the_divergence() -> None:
    assert dovetail.get("entropy_controller", "fixed").load() is dovetail.get("kl_controller", "fixed").load()

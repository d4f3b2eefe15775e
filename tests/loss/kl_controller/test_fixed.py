"""KL controller `fixed`."""

from __future__ import annotations

import jax.numpy as jnp

from dovetail_loss.kl_controller.fixed import Fixed


def test_the_coefficient_stays() -> None:
    controller = Fixed()
    state = controller.init(0.04)
    for kl in (0.0, 100.0, jnp.nan):
        state = controller.update(state, jnp.float32(kl), jnp.int32(64))
    assert controller.coef(state) == jnp.float32(0.04)

"""Call a policy loss on a few numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dovetail


def fields(logps: Any, advantages: Any, *, old_logps: Any = 0.0, mask: Any = True, **more: Any) -> dict[str, jax.Array]:
    """Return what a loss may read, as float32; the sampler agrees with the old policy unless `rollout_logps` is given."""
    shape = np.shape(logps)
    given = {"logps": logps, "advantages": advantages, "old_logps": old_logps} | more
    given.setdefault("rollout_logps", old_logps)
    arrays = {name: jnp.asarray(np.broadcast_to(np.asarray(value, np.float32), shape)) for name, value in given.items()}
    return arrays | {"mask": jnp.asarray(np.broadcast_to(mask, shape))}


def result(name: str, at: dict[str, jax.Array], **params: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the loss per token and its metrics."""
    component = dovetail.get("policy_loss", name)
    found = component(*(at[read] for read in component.reads), **params)
    loss, metrics = found if isinstance(found, tuple) else (found, {})
    return np.asarray(loss), {key: np.asarray(value) for key, value in metrics.items()}


def value(name: str, at: dict[str, jax.Array], **params: Any) -> np.ndarray:
    """Return the loss per token."""
    return result(name, at, **params)[0]


def gradient(name: str, at: dict[str, jax.Array], **params: Any) -> np.ndarray:
    """Return the gradient of the sum of the loss over tokens, by the log-probabilities."""
    component = dovetail.get("policy_loss", name)

    def total(logps: jax.Array) -> jax.Array:
        found = component(*((at | {"logps": logps})[read] for read in component.reads), **params)
        return jnp.sum(found[0] if isinstance(found, tuple) else found)

    return np.asarray(jax.grad(total)(at["logps"]))

"""Gradients accumulated over micro-batches, and the optimiser's step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from dovetail.devices.compiled import NUMBERS
from dovetail.step.forward import split_rows
from dovetail.step.parts import Floats, Part, Sums, merge

LossFn = Callable[[Any, dict[str, Array]], tuple[Float[Array, ""], Sums]]


def accumulate(
    loss_fn: LossFn, params: Any, batch: dict[str, Array], micro_batch_size: int
) -> tuple[Any, Float[Array, ""], Sums]:
    """Return the gradient, the loss and the metric sums of a mini-batch, one micro-batch at a time.

    The loss is a weighted sum whose weights were made on the whole mini-batch, so micro-batches simply add up: the
    split changes nothing but rounding, and a ragged last micro-batch is filled with rows of weight zero.
    """
    gradient = jax.value_and_grad(loss_fn, has_aux=True)

    def one(micro: dict[str, Array]) -> tuple[Any, Array, Sums]:
        (loss, metrics), grads = gradient(params, micro)
        return grads, loss, metrics

    if micro_batch_size >= batch["tokens"].shape[0]:
        return one(batch)
    micros = split_rows(batch, micro_batch_size)
    shapes = jax.eval_shape(one, jax.tree.map(lambda x: x[0], micros))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def step(carry: Any, micro: dict[str, Array]) -> tuple[Any, None]:
        *sums, metrics = carry
        *more, found = one(micro)
        return (*jax.tree.map(jnp.add, sums, more), merge(metrics, found)), None

    total, _ = jax.lax.scan(step, zeros, micros)
    return total


@attrs.frozen(kw_only=True)
class Optimiser:
    """An optimizer component, its learning-rate schedule, and clipping by the global norm.

    Everything numeric arrives in `hyper`, so that trials which differ in numbers share one executable.
    """

    role: str
    optimizer: Part
    schedule: Part
    settings: Mapping[str, float] = attrs.field(metadata=NUMBERS)

    def init(self, params: Any) -> Any:
        """Return the optimiser's first state."""
        return self._transform(self.settings["lr"], self.settings["max_grad_norm"], self.optimizer.floats).init(params)

    def _transform(self, lr: Any, max_grad_norm: Any, floats: Any) -> optax.GradientTransformation:
        make = self.optimizer.build(floats)
        return optax.chain(optax.clip_by_global_norm(max_grad_norm), make(lr))

    def apply(
        self,
        params: Any,
        state: Any,
        grads: Any,
        step: Int[Array, ""],
        total: Int[Array, ""],
        hyper: Mapping[str, Floats],
    ) -> tuple[Any, Any, dict[str, Array]]:
        """Return the next parameters and state.

        Metrics are `lr`, `grad_norm` (before clipping), and `update_norm`, the length of the step that is taken.
        """
        mine = hyper[self.role]
        factor, _ = self.schedule({"step": step, "total_steps": total}, hyper)
        lr = mine["lr"] * factor
        transform = self._transform(lr, mine["max_grad_norm"], hyper[self.optimizer.role])
        with jax.numpy_dtype_promotion("standard"):  # optax multiplies floats by its integer step count
            updates, state = transform.update(grads, state, params)
        norms = {"grad_norm": optax.tree.norm(grads), "update_norm": optax.tree.norm(updates)}
        return optax.apply_updates(params, updates), state, {"lr": lr, **norms}

"""Gradients accumulated over micro-batches, and the optimiser's step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import attrs
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from dovetail.arrays import full_precision
from dovetail.devices.compiled import NUMBERS
from dovetail.step.forward import split_rows
from dovetail.step.parts import Floats, Part, Sums, merge

LossFn = Callable[[Any, dict[str, Array]], tuple[Float[Array, ""], Sums]]


def accumulate(
    loss_fn: LossFn, params: Any, batch: dict[str, Array], micro_batch_size: int
) -> tuple[Any, Float[Array, ""], Sums]:
    """Return the gradient, the loss and the metric sums of a mini-batch, one micro-batch at a time.

    The loss is a weighted sum whose weights were computed on the whole mini-batch, so micro-batches simply add up: the
    split changes only rounding, and a ragged last micro-batch is padded with rows of weight zero. The gradient is
    float32 whatever the type of the parameters: a bfloat16 sum stops growing after a few hundred equal summands.
    """
    gradient = jax.value_and_grad(loss_fn, has_aux=True)

    def one(micro: dict[str, Array]) -> tuple[Any, Array, Sums]:
        (loss, metrics), grads = gradient(params, micro)
        return jax.tree.map(full_precision, grads), loss, metrics

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


class WithMasters(NamedTuple):
    """An optimiser's state, and float32 master weights for a model whose parameters have fewer bits."""

    masters: Any
    state: Any


@attrs.frozen(kw_only=True)
class Optimiser:
    """An optimizer component, its learning-rate schedule, and clipping by the global norm.

    All numbers are passed in `hyper`, so that trials that differ only in numbers share one executable.

    Parameters of fewer than 32 bits get float32 master weights (Micikevicius et al. 2018, "Mixed Precision Training",
    section 3.1): neighbouring bfloat16 numbers are 0.4 to 0.8 % apart, so steps of the usual size would be rounded off.
    """

    role: str
    optimizer: Part
    schedule: Part
    settings: Mapping[str, float] = attrs.field(metadata=NUMBERS)

    def init(self, params: Any) -> Any:
        """Return the optimiser's initial state."""
        transform = self._transform(self.settings["lr"], self.settings["max_grad_norm"], self.optimizer.floats)
        if not has_few_bits(params):
            return transform.init(params)
        # float32 leaves are copied, too: parameters and state are donated, and a buffer cannot be donated twice
        masters = jax.tree.map(lambda x: jnp.array(full_precision(x), copy=True), params)
        return WithMasters(masters, transform.init(masters))

    def _transform(self, lr: Any, max_grad_norm: Any, floats: Any) -> optax.GradientTransformation:
        component = self.optimizer.component
        with component.named():
            made = self.optimizer.build(floats)(lr)
        if not isinstance(made, optax.GradientTransformation):
            raise component.wrong(f"returned {made!r:.80}; return an optax.GradientTransformation")
        return optax.chain(optax.clip_by_global_norm(max_grad_norm), made)

    def see_course(self, total: int, hyper: Mapping[str, Floats]) -> None:
        """Look at what the schedule gives at the beginning, in the middle and at the end of a run of `total` steps.

        Without any step it is never asked, and need not have an answer.

        Raises:
            PluginError: if a number is not finite, or negative although the component does not claim to be `signed`.
        """
        component = self.schedule.component
        for step in sorted({0, total // 2, total - 1} if total else ()):
            factor = float(self._factor(jnp.int32(step), jnp.int32(total), hyper))
            if not math.isfinite(factor) or (factor < 0 and not component.declares.get("signed")):
                how = f"returned {factor:g} for step {step} of {total}; {self.role}.lr is multiplied by it"
                raise component.wrong(how)

    def _factor(self, step: Int[Array, ""], total: Int[Array, ""], hyper: Mapping[str, Floats]) -> Any:
        factor, _ = self.schedule({"step": step, "total_steps": total}, hyper)
        with self.schedule.component.named():
            shape = jnp.asarray(factor).shape
        if shape != ():
            how = f"returned the shape {shape}; return one number, by which {self.role}.lr is multiplied"
            raise self.schedule.component.wrong(how)
        return factor

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

        Metrics are `lr`, `grad_norm` (before clipping), and `update_norm`, the norm of the change of the parameters.
        """
        mine = hyper[self.role]
        lr = mine["lr"] * self._factor(step, total, hyper)
        transform = self._transform(lr, mine["max_grad_norm"], hyper[self.optimizer.role])
        masters, inner = state if isinstance(state, WithMasters) else (params, state)
        # optax multiplies floats by its integer step count
        with self.optimizer.component.named(), jax.numpy_dtype_promotion("standard"):
            updates, inner = transform.update(grads, inner, masters)
        self._check(updates, masters)
        norms = {"grad_norm": optax.tree.norm(grads), "update_norm": optax.tree.norm(updates)}
        moved = optax.apply_updates(masters, updates)
        found = {"lr": lr, **norms}
        if not isinstance(state, WithMasters):
            return moved, inner, found
        return jax.tree.map(lambda x, like: x.astype(like.dtype), moved, params), WithMasters(moved, inner), found

    def _check(self, updates: Any, params: Any) -> None:
        """Refuse updates that are not one for each number of the parameters."""
        there, wanted = (_shapes(each) for each in (updates, params))
        for name in {**wanted, **there}:
            if there.get(name) != wanted.get(name):
                found, parameter = (f"of shape {each[name]}" if name in each else "missing" for each in (there, wanted))
                how = f"returned updates whose {name} is {found}; that of the parameters is {parameter}"
                raise self.optimizer.component.wrong(how)


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    return {jax.tree_util.keystr(path): jnp.shape(leaf) for path, leaf in jax.tree.leaves_with_path(tree)}


def has_few_bits(params: Any) -> bool:
    """Return whether some parameters have fewer than 32 bits, so that steps would be rounded off.

    >>> has_few_bits({"w": jnp.ones(1, jnp.bfloat16)}), has_few_bits({"w": jnp.ones(1)})
    (True, False)
    """
    return any(jnp.finfo(leaf.dtype).bits < 32 for leaf in jax.tree.leaves(params))

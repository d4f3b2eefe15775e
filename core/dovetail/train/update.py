"""One optimiser step on one mini-batch, for the policy and for the critic."""

from __future__ import annotations

from typing import Any

import attrs
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Key

from dovetail.errors import PluginError
from dovetail.protocols import Weights
from dovetail.train.algorithm import Algorithm
from dovetail.train.forward import quantities, values
from dovetail.train.gradients import accumulate
from dovetail.train.mismatch import mismatch
from dovetail.train.moment import Moment
from dovetail.train.parts import FieldScope, Floats, Part, Sums, masked_sum, once, sums


@struct.dataclass
class Trained:
    """Parameters with their optimiser's state."""

    params: Any
    optimiser: Any


@attrs.frozen(kw_only=True)
class PolicyUpdate:
    """Weights, gradients in micro-batches, optimiser."""

    algorithm: Algorithm
    graphdef: Any

    def __call__(
        self,
        policy: Trained,
        frozen: Any,
        reference: Weights | None,
        batch: dict[str, Array],
        moment: Moment,
        hyper: dict[str, Floats],
    ) -> tuple[Trained, Sums]:
        """Return the updated policy and metric sums.

        `frozen` is what of its model is not trained; `reference` is None unless the plan needs it in the update.
        """
        algorithm = self.algorithm
        constants = moment.fields(algorithm.schedule, hyper)
        batch = dict(batch) | prepare(algorithm, algorithm.loss_agg, batch, constants, hyper)

        def loss_fn(params: Any, micro: dict[str, Array]) -> tuple[Array, Sums]:
            now = quantities(
                self.graphdef,
                Weights(params, frozen),
                micro,
                algorithm.quantities(algorithm.plan.now),
                hyper["train"]["temperature"],
                reference,
                algorithm.rows_per_prompt,
                moment.dropout,
            )
            if algorithm.plan.old_logps_from_update:
                now["old_logps"] = jax.lax.stop_gradient(now["logps"])
            return self._loss(FieldScope(micro | now | constants, algorithm.fields, hyper), moment, hyper)

        grads, loss, metrics = accumulate(loss_fn, policy.params, batch, algorithm.micro_batch_size)
        params, state, found = algorithm.optimiser.apply(
            policy.params, policy.optimiser, grads, moment.step, moment.total, hyper
        )
        metrics |= once({"policy_loss/loss": loss} | {f"optimizer/{name}": value for name, value in found.items()})
        return Trained(params, state), metrics

    def _loss(self, scope: FieldScope, moment: Moment, hyper: dict[str, Floats]) -> tuple[Array, Sums]:
        algorithm, mask, weights = self.algorithm, scope["mask"], scope["weights"]
        per_token, found = algorithm.policy_loss(scope, hyper)
        metrics = sums("policy_loss", found, mask)
        factors, found = self._factors(scope, hyper)
        loss = masked_sum(jnp.where(mask, weights * factors, 0.0), per_token)
        metrics |= found
        if algorithm.kl and algorithm.kl_in == "loss":
            divergence, _ = algorithm.kl(scope, hyper)
            metrics |= sums("kl", {"mean": divergence}, mask)
            loss = loss + moment.kl_coef * masked_sum(weights, divergence)
        if algorithm.entropy:
            metrics |= sums("entropy", {"mean": scope["entropy"]}, mask)
            loss = loss - moment.entropy_coef * masked_sum(weights, scope["entropy"])
        if "logps" not in algorithm.plan.old and "logps" in scope:
            metrics |= mismatch(jax.lax.stop_gradient(scope["logps"]), scope["rollout_logps"], mask)
        for name in algorithm.monitor:
            metrics |= sums(name, {"mean": scope[name]}, mask)
        return loss, metrics

    def _factors(self, scope: FieldScope, hyper: dict[str, Floats]) -> tuple[Array, Sums]:
        """What corrections and selections multiply the policy loss by."""
        algorithm, mask = self.algorithm, scope["mask"]
        factors, metrics = jnp.ones(mask.shape), {}
        if algorithm.corrections:
            factors = factors * scope["is_weights"]
        if algorithm.selections:
            factors = factors * scope["selection_weights"]
        for selection in algorithm.live_selections:
            chosen, found = selection(scope, hyper)
            if isinstance(chosen, tuple):
                raise PluginError(
                    f"{selection.component.label} of {selection.component.origin} reads 'logps', so it is asked with"
                    " the loss, a micro-batch at a time, and cannot change the mask; return weights only"
                )
            factors = factors * jax.lax.stop_gradient(chosen).astype(factors.dtype)
            metrics |= sums("selection", found | {"weight_mean": factors}, mask)
        return factors, metrics


@attrs.frozen(kw_only=True)
class CriticUpdate:
    """The same for the critic."""

    algorithm: Algorithm
    graphdef: Any

    def __call__(
        self, critic: Trained, frozen: Any, batch: dict[str, Array], moment: Moment, hyper: dict[str, Floats]
    ) -> tuple[Trained, Sums]:
        """Return the updated critic and metric sums."""
        algorithm, parts = self.algorithm, self.algorithm.critic
        assert parts is not None, "a critic is trained only where the plan has one"
        constants = moment.fields(algorithm.schedule, hyper)
        batch = dict(batch) | prepare(algorithm, parts.loss_agg, batch, constants, hyper)

        def loss_fn(params: Any, micro: dict[str, Array]) -> tuple[Array, Sums]:
            weights = Weights(params, frozen)
            now = {"values": values(self.graphdef, weights, micro, algorithm.rows_per_prompt, moment.dropout)}
            per_token, found = parts.value_loss(FieldScope(micro | now | constants, algorithm.fields, hyper), hyper)
            metrics = sums("critic", found | {"value_mean": now["values"]}, micro["mask"])
            return masked_sum(micro["weights"], per_token), metrics

        grads, loss, metrics = accumulate(loss_fn, critic.params, batch, algorithm.micro_batch_size)
        params, state, found = parts.optimiser.apply(
            critic.params, critic.optimiser, grads, moment.step, moment.total, hyper
        )
        metrics |= once({"critic/loss": loss} | {f"critic/{name}": value for name, value in found.items()})
        return Trained(params, state), metrics


def prepare(
    algorithm: Algorithm,
    loss_agg: Part,
    batch: dict[str, Array],
    constants: dict[str, Any],
    hyper: dict[str, Floats],
) -> dict[str, Array]:
    """Compute what belongs to the whole mini-batch before it is split: the weights and the fields ranked over it."""
    scope = FieldScope(batch | constants, algorithm.fields, hyper)
    found = {name: scope[name] for name in algorithm.plan.derived["mini"]}
    weights, _ = loss_agg(scope, hyper)
    return found | {"weights": jax.lax.stop_gradient(jnp.where(batch["mask"], weights, 0.0))}


def mini_batches(
    batch: dict[str, Array], size: int, epochs: int, key: Key[Array, ""], rows_per_prompt: int = 1
) -> list[dict[str, Array]]:
    """Split a batch into mini-batches, freshly shuffled for each epoch; a ragged last one is filled with empty rows.

    Each `rows_per_prompt` consecutive rows, a divisor of `size`, stay together, so that their prompt is computed once.
    With one mini-batch there is nothing to shuffle, and the order of the rows stays. `draw_ids` tell rows and epochs
    apart.
    """
    rows = batch["tokens"].shape[0]
    pieces = []
    for epoch in range(epochs):
        numbered = batch | {"draw_ids": jnp.arange(epoch * rows, (epoch + 1) * rows, dtype=jnp.int32)}
        if size >= rows:
            pieces.append(numbered)
            continue
        order = jax.random.permutation(jax.random.fold_in(key, epoch), jnp.arange(rows).reshape(-1, rows_per_prompt))
        order = order.reshape(-1)
        pieces += [_take(numbered, order[start : start + size], size) for start in range(0, rows, size)]
    return pieces


def _take(batch: dict[str, Array], rows: Array, size: int) -> dict[str, Array]:
    filling = size - rows.shape[0]

    def take(array: Array) -> Array:
        taken = jnp.take(array, rows, axis=0)
        return jnp.pad(taken, [(0, filling)] + [(0, 0)] * (array.ndim - 1)) if filling else taken

    return {name: take(array) for name, array in batch.items()}

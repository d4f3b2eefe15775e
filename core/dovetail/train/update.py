"""One optimiser step on one mini-batch, for the policy and for the critic."""

from __future__ import annotations

from typing import Any

import attrs
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int, Key

from dovetail.train.algorithm import Algorithm
from dovetail.train.forward import quantities, values
from dovetail.train.gradients import accumulate
from dovetail.train.parts import FieldScope, Floats, Part, Sums, masked_sum, sums


@struct.dataclass
class Trained:
    """Parameters with their optimiser's state."""

    params: Any
    optimiser: Any


@struct.dataclass
class Moment:
    """Where in the run an update happens: the step, the steps in all, a key of its own, and the KL coefficient."""

    step: Int[Array, ""]
    total: Int[Array, ""]
    key: Key[Array, ""]
    kl_coef: Float[Array, ""]

    @property
    def progress(self) -> Float[Array, ""]:
        """Share of the steps done."""
        return self.step.astype(jnp.float32) / jnp.maximum(self.total, 1).astype(jnp.float32)


@attrs.frozen(kw_only=True)
class PolicyUpdate:
    """Weights, gradients in micro-batches, optimiser."""

    algorithm: Algorithm
    graphdef: Any

    def __call__(
        self, policy: Trained, batch: dict[str, Array], moment: Moment, hyper: dict[str, Floats]
    ) -> tuple[Trained, Sums]:
        """Return the updated policy and metric sums."""
        algorithm = self.algorithm
        constants = {"key": moment.key, "progress": moment.progress}
        batch = dict(batch) | prepare(algorithm, algorithm.loss_agg, batch, constants, hyper)

        def loss_fn(params: Any, micro: dict[str, Array]) -> tuple[Array, Sums]:
            now = quantities(
                self.graphdef,
                params,
                micro,
                algorithm.quantities(algorithm.plan.now),
                hyper["train"]["temperature"],
            )
            if algorithm.plan.old_logps_from_update:
                now["old_logps"] = jax.lax.stop_gradient(now["logps"])
            return self._loss(FieldScope(micro | now | constants, algorithm.fields, hyper), moment.kl_coef, hyper)

        grads, loss, metrics = accumulate(loss_fn, policy.params, batch, algorithm.micro_batch_size)
        params, state, found = algorithm.optimiser.apply(
            policy.params, policy.optimiser, grads, moment.step, moment.total, hyper
        )
        metrics |= _once({"policy_loss/loss": loss} | {f"optimizer/{name}": value for name, value in found.items()})
        return Trained(params, state), metrics

    def _loss(self, scope: FieldScope, kl_coef: Array, hyper: dict[str, Floats]) -> tuple[Array, Sums]:
        algorithm, mask, weights = self.algorithm, scope["mask"], scope["weights"]
        per_token, found = algorithm.policy_loss(scope, hyper)
        metrics = sums("policy_loss", found, mask)
        if algorithm.correction:
            per_token = jnp.where(mask, scope["is_weights"], 1.0) * per_token
        loss = masked_sum(weights, per_token)
        if algorithm.kl and algorithm.kl_in == "loss":
            divergence, _ = algorithm.kl(scope, hyper)
            metrics |= sums("kl", {"mean": divergence}, mask)
            loss = loss + kl_coef * masked_sum(weights, divergence)
        if algorithm.entropy:
            loss = loss - hyper["train"]["entropy_coef"] * masked_sum(weights, scope["entropy"])
        for name in algorithm.monitor:
            metrics |= sums(name, {"mean": scope[name]}, mask)
        return loss, metrics


@attrs.frozen(kw_only=True)
class CriticUpdate:
    """The same for the critic."""

    algorithm: Algorithm
    graphdef: Any

    def __call__(
        self, critic: Trained, batch: dict[str, Array], moment: Moment, hyper: dict[str, Floats]
    ) -> tuple[Trained, Sums]:
        """Return the updated critic and metric sums."""
        algorithm, parts = self.algorithm, self.algorithm.critic
        assert parts is not None, "a critic is trained only where the plan has one"
        constants = {"key": moment.key, "progress": moment.progress}
        batch = dict(batch) | prepare(algorithm, parts.loss_agg, batch, constants, hyper)

        def loss_fn(params: Any, micro: dict[str, Array]) -> tuple[Array, Sums]:
            now = {"values": values(self.graphdef, params, micro)}
            per_token, found = parts.value_loss(FieldScope(micro | now | constants, algorithm.fields, hyper), hyper)
            metrics = sums("critic", found | {"value_mean": now["values"]}, micro["mask"])
            return masked_sum(micro["weights"], per_token), metrics

        grads, loss, metrics = accumulate(loss_fn, critic.params, batch, algorithm.micro_batch_size)
        params, state, found = parts.optimiser.apply(
            critic.params, critic.optimiser, grads, moment.step, moment.total, hyper
        )
        metrics |= _once({"critic/loss": loss} | {f"critic/{name}": value for name, value in found.items()})
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


def mini_batches(batch: dict[str, Array], size: int, epochs: int, key: Key[Array, ""]) -> list[dict[str, Array]]:
    """Split a batch into mini-batches, freshly shuffled for each epoch; a ragged last one is filled with empty rows.

    With one mini-batch there is nothing to shuffle, and the order of the rows stays.
    """
    rows = batch["tokens"].shape[0]
    if size >= rows:
        return [batch] * epochs
    pieces = []
    for epoch in range(epochs):
        order = jax.random.permutation(jax.random.fold_in(key, epoch), rows)
        pieces += [_take(batch, order[start : start + size], size) for start in range(0, rows, size)]
    return pieces


def _take(batch: dict[str, Array], rows: Array, size: int) -> dict[str, Array]:
    filling = size - rows.shape[0]

    def take(array: Array) -> Array:
        taken = jnp.take(array, rows, axis=0)
        return jnp.pad(taken, [(0, filling)] + [(0, 0)] * (array.ndim - 1)) if filling else taken

    return {name: take(array) for name, array in batch.items()}


def _once(metrics: dict[str, Array]) -> Sums:
    return {name: (value, jnp.float32(1)) for name, value in metrics.items()}

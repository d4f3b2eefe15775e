"""From sampled and scored completions to a batch with advantages, in one compiled call."""

from __future__ import annotations

from typing import Any

import attrs
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from dovetail.errors import PlanError
from dovetail.train.algorithm import Algorithm
from dovetail.train.forward import by_micro_batch, quantities, values
from dovetail.train.parts import FieldScope, Floats, Sums, sums


@attrs.frozen(kw_only=True)
class Collector:
    """Runs the forward passes that the plan asks for, then the estimator."""

    algorithm: Algorithm
    graphdef: Any
    critic_graphdef: Any

    def __call__(
        self,
        params: Any,
        ref_params: Any,
        critic_params: Any,
        batch: dict[str, Array],
        kl_coef: Float[Array, ""],
        hyper: dict[str, Floats],
        key: Key[Array, ""],
        progress: Float[Array, ""],
    ) -> tuple[dict[str, Array], Sums]:
        """Return the batch with what the update reads, and metric sums.

        `batch` holds the sampled tokens, `scores`, and `greedy_scores` where the plan has them. `params` is the policy
        that sampled; `ref_params` and `critic_params` are None where the plan has no such pass.
        """
        algorithm = self.algorithm
        batch = batch | self._forwards(params, ref_params, critic_params, batch, hyper)
        metrics: Sums = {}
        scope = FieldScope(batch | {"key": key, "progress": progress}, algorithm.fields, hyper, at_collection=True)
        if algorithm.correction:
            (is_weights, kept), found = algorithm.correction(scope, hyper)
            batch |= {"is_weights": is_weights, "mask": kept & batch["mask"]}
            metrics |= sums("correction", found, batch["mask"])
            scope.update(batch)
        rewards, found = self._token_rewards(scope, kl_coef, hyper)
        metrics |= found
        scope["token_rewards"] = batch["token_rewards"] = rewards
        # what shaping and KL took from the tokens, an estimator that reads whole scores must see too
        scope["scores"] = jnp.sum(jnp.where(batch["mask"], rewards, 0.0), axis=-1)
        estimate, found = algorithm.advantage(scope, hyper)
        metrics |= sums("advantage", found, batch["mask"])
        batch["advantages"], returns = estimate if isinstance(estimate, tuple) else (estimate, None)
        if algorithm.critic:
            if returns is None:
                raise PlanError(
                    f"advantage {algorithm.advantage.component.name} reads 'values', so a critic is trained, but"
                    " returns no 'returns' for it to learn; return (advantages, returns)"
                )
            batch["returns"] = returns
        return batch, metrics

    def _forwards(
        self,
        params: Any,
        ref_params: Any,
        critic_params: Any,
        batch: dict[str, Array],
        hyper: dict[str, Floats],
    ) -> dict[str, Array]:
        plan, size = self.algorithm.plan, self.algorithm.micro_batch_size
        temperature = hyper["train"]["temperature"]
        found: dict[str, Array] = {}
        for prefix, names, weights in (("old_", plan.old, params), ("ref_", plan.ref, ref_params)):
            if names:
                wanted = self.algorithm.quantities(names)
                scored = by_micro_batch(
                    lambda micro, w=weights, q=wanted: quantities(self.graphdef, w, micro, q, temperature),
                    _model_inputs(batch),
                    size,
                )
                found |= {prefix + name: value for name, value in scored.items()}
        if plan.critic:
            found["old_values"] = by_micro_batch(
                lambda micro: {"values": values(self.critic_graphdef, critic_params, micro)},
                _model_inputs(batch),
                size,
            )["values"]
        return found

    def _token_rewards(
        self, scope: FieldScope, kl_coef: Float[Array, ""], hyper: dict[str, Floats]
    ) -> tuple[Float[Array, "seq token"], Sums]:
        algorithm, mask = self.algorithm, scope["mask"]
        metrics: Sums = {}
        rewards = on_last_token(scope["scores"], mask)
        if algorithm.reward_shaping:
            scope["token_rewards"] = rewards
            rewards, found = algorithm.reward_shaping(scope, hyper)
            metrics |= sums("reward_shaping", found, mask)
        if algorithm.kl and algorithm.kl_in == "reward":
            divergence, _ = algorithm.kl(scope, hyper)
            metrics |= sums("kl", {"mean": divergence}, mask)
            rewards = rewards - jnp.where(mask, kl_coef * divergence, 0.0)
        return rewards, metrics


def on_last_token(scores: Float[Array, "seq"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Put each completion's score on its last policy token; a row without policy tokens gets none.

    >>> on_last_token(jnp.array([2.0]), jnp.array([[True, True, False, True, False]]))
    Array([[0., 0., 0., 2., 0.]], dtype=float32)
    """
    later = jnp.cumsum(mask[:, ::-1], axis=1)[:, ::-1]
    return jnp.where(mask & (later == 1), scores[:, None], 0.0)


def _model_inputs(batch: dict[str, Array]) -> dict[str, Array]:
    return {name: batch[name] for name in ("prompt_tokens", "prompt_mask", "tokens")}

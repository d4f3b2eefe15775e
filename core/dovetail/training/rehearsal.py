"""A step on shapes alone, before anything is sampled, so that a component's mistake is found at the start.

Otherwise a loss that raises, or returns another shape, would end a run after its warm start, its first evaluation and
its first rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from dovetail.devices.compiled import share
from dovetail.plan.roles import CRITIC, POLICY
from dovetail.protocols import Weights
from dovetail.step.algorithm import Algorithm
from dovetail.step.collect import Collector
from dovetail.step.moment import Moment
from dovetail.step.parts import Floats
from dovetail.step.update import Update, mini_batches
from dovetail.training.drawn import Extras
from dovetail.training.models import Models, split, with_head


class StandIn(nnx.Module):
    """A `LanguageModel` with the sizes of another and no layers: to trace dozens of those takes seconds."""

    packs = True

    def __init__(self, width: int, vocab_size: int) -> None:
        self.width, self.vocab_size = width, vocab_size
        self.scale = nnx.Param(jnp.ones(width))

    def __call__(
        self,
        tokens: Array,
        mask: Array,
        cache: Any = None,
        *,
        prefix: Any = None,
        texts: Array | None = None,
        choices: Array | None = None,
    ) -> tuple[Array, ...]:
        """Return hidden states and, where choices are given, these."""
        hidden = jnp.broadcast_to(self.scale[...], (*tokens.shape, self.width))
        return (hidden, cache) if choices is None else (hidden, cache, choices)

    def logits(self, hidden: Array) -> Array:
        """Return logits that depend on the hidden states."""
        return jnp.broadcast_to(jnp.sum(hidden, axis=-1, keepdims=True), (*hidden.shape[:-1], self.vocab_size))

    def init_cache(self, batch: int, length: int) -> Any:
        """Return a cache that holds nothing."""
        return jnp.zeros((batch, 1))


@attrs.frozen(kw_only=True)
class Rehearsal:
    """A step up to the gradients of its first mini-batch."""

    algorithm: Algorithm
    graphdefs: Mapping[str, Any]

    def __call__(
        self,
        weights: dict[str, Weights],
        batch: dict[str, Array],
        moment: Moment,
        hyper: dict[str, Floats],
        state: Any,
    ) -> Any:
        """Return the gradients of every model that is trained."""
        algorithm, sizes = self.algorithm, self.algorithm.sizes
        collect = Collector(algorithm=algorithm, graphdefs=self.graphdefs)
        collected, _, _ = collect(weights, batch, moment, hyper, state)
        mini, *_ = mini_batches(collected, sizes.mini_batch_size, 1, moment.key, sizes.rows_per_prompt)
        beside = {role: weights[role] for role in algorithm.plan.roles_in_update}
        found = {}
        for model in algorithm.terms:
            update = Update(algorithm=algorithm, graphdefs=self.graphdefs, model=model)
            others = beside if model == POLICY else {}
            found[model], _ = update.gradients(*weights[model], others, mini, moment, hyper)
        return found


def rehearse(extras: Extras) -> None:
    """Trace a run's step on the shapes of its first batch; nothing is computed but learning rates.

    Trials that differ only in numbers are traced once.

    Raises:
        PluginError: for a component that raises, or returns what a step cannot use.
    """
    setup, algorithm = extras.setup, extras.setup.algorithm
    stand_ins = {role: _stand_in(setup.models, role) for role in (POLICY, *algorithm.plan.roles)}
    batch: dict[str, Any] = extras.empty(setup.config.train.prompts)
    if "staleness" in algorithm.plan:
        batch["staleness"] = batch["versions"]
    moment = Moment.of(setup.config, 0, {name: jnp.float32(0) for name in algorithm.controllers})
    remembering = algorithm.remembering
    state = remembering.first_state(setup.speakers.count) if remembering else None
    step = Rehearsal(algorithm=algorithm, graphdefs={role: graphdef for role, (graphdef, _) in stand_ins.items()})
    weights = {role: each for role, (_, each) in stand_ins.items()}
    jax.eval_shape(share(step).alone, weights, batch, moment, algorithm.hyper, state)
    for optimiser in algorithm.optimisers.values():
        optimiser.see_course(int(moment.total), algorithm.hyper)


def _stand_in(models: Models, role: str) -> tuple[Any, Weights]:
    """Return the structure and the shapes of a stand-in for a role's model."""
    section = role if role == CRITIC or models.has_own(role) else "train"
    sizes = models.sizes(section)
    return split(nnx.eval_shape(lambda: with_head(StandIn(*sizes)) if role == CRITIC else StandIn(*sizes)))

"""Broken optimisers, curves and followers: moments that are not corrected or not kept, and numbers turned round."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import attrs
import jax
import jax.numpy as jnp
import optax
from annotated_types import Interval
from tests.kit.conformance.mutants import caught_by, right

Share = Annotated[float, Interval(ge=0, le=1)]


class _Moments(NamedTuple):
    count: Any
    mean: Any
    square: Any


def _begin(params: Any) -> _Moments:
    return _Moments(jnp.zeros((), int), jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))


def _next(state: _Moments, gradient: Any, b1: float, b2: float) -> _Moments:
    mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mean, gradient)
    square = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g**2, state.square, gradient)
    return _Moments(state.count + 1, mean, square)


def _ratio(mean: Any, square: Any) -> Any:
    return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + 1e-8), mean, square)


@caught_by("optimizer", "steps_settle")
@attrs.frozen(kw_only=True)
class WithoutBiasCorrection:
    b1: float = 0.9
    b2: float = 0.999

    def __call__(self, lr: Any) -> Any:
        def update(updates: Any, state: Any, params: Any = None) -> Any:
            following = _next(state, updates, self.b1, self.b2)
            return _ratio(following.mean, following.square), following

        return optax.chain(optax.GradientTransformation(_begin, update), optax.scale_by_learning_rate(lr))


@caught_by("optimizer", "keeps_its_moments")
@attrs.frozen(kw_only=True)
class ForgetsItsSquares:
    decay: float = 0.99

    def __call__(self, lr: Any) -> Any:
        def update(updates: Any, state: Any, params: Any = None) -> Any:
            following = _next(state, updates, 0.0, self.decay)
            steps = _ratio(updates, following.square)
            return steps, following._replace(square=state.square)

        return optax.chain(optax.GradientTransformation(_begin, update), optax.scale_by_learning_rate(lr))


@caught_by("optimizer", "decay_is_decoupled")
@attrs.frozen(kw_only=True)
class DecaysThroughTheMoments:
    weight_decay: float = 0.01

    def __call__(self, lr: Any) -> Any:
        return optax.chain(optax.add_decayed_weights(self.weight_decay), optax.adam(lr))


@right("optimizer")
@attrs.frozen(kw_only=True)
class Belief:
    """AdaBelief, whose steps grow along one gradient; b1 and b2 are the decays of its means."""

    b1: float = 0.9
    b2: float = 0.999

    def __call__(self, lr: Any) -> Any:
        return optax.adabelief(lr, b1=self.b1, b2=self.b2)


@right("optimizer")
@attrs.frozen(kw_only=True)
class RootMeanSquare:
    """RMSprop without bias correction, as it was first described: decay of the squares, and momentum."""

    decay: float = 0.9
    momentum: float = 0.9

    def __call__(self, lr: Any) -> Any:
        return optax.rmsprop(lr, decay=self.decay, momentum=self.momentum)


@right("optimizer")
@attrs.frozen(kw_only=True)
class Factored:
    """Adafactor, whose state has places that it does not use."""

    def __call__(self, lr: Any) -> Any:
        return optax.adafactor(lr, min_dim_size_to_factor=2, multiply_by_parameter_scale=False)


@caught_by("lr_schedule", "beyond_the_end")
def a_power_of_what_is_left(step, total_steps, *, power: float = 0.9):
    return (1.0 - step / total_steps) ** power


@caught_by("lr_schedule", "ends_where_it_says")
def a_whole_cosine(step, total_steps, *, end: Share = 0.1):
    done = jnp.clip(step / total_steps, 0.0, 1.0)
    return end + (1 - end) * 0.5 * (1 + jnp.cos(2 * jnp.pi * done))


@caught_by("lr_schedule", "a_longer_decay_is_no_higher")
def falls_from_there(step, total_steps, *, decay_ratio: Share = 0.2):
    begin = decay_ratio * total_steps
    return 1.0 - jnp.clip((step - begin) / jnp.maximum(total_steps - begin, 1.0), 0.0, 1.0)


@right("lr_schedule")
def restarts(step, total_steps, *, end: Share = 0.1):
    """w = end + (1 - end) ½ (1 + cos π frac(3 p)), p = step / total_steps: three times down to `end`."""
    within = (3.0 * step.astype(jnp.float32) / jnp.maximum(total_steps, 1)) % 1.0
    return end + (1 - end) * 0.5 * (1 + jnp.cos(jnp.pi * within))


@caught_by("follower", "a_larger_decay_moves_less")
@attrs.frozen(kw_only=True)
class TheOtherShare:
    decay: Share = 0.99

    def __call__(self, weights: Any, policy: Any) -> Any:
        return jax.tree.map(lambda w, p: (w + self.decay * (p - w)).astype(w.dtype), weights, policy)

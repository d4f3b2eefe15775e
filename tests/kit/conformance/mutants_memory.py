"""Broken states: of estimators, controllers and optimisers; and curves that decide wrongly."""

from __future__ import annotations

from typing import Any

import attrs
import jax
import jax.numpy as jnp
import optax
from tests.kit.conformance.mutants import caught_by
from tests.kit.conformance.mutants_batches import alive, spread


@attrs.frozen(kw_only=True)
class _Remembers:
    """An estimator with a running mean as its baseline; what is below breaks one thing."""

    def init(self, roles: int) -> dict[str, Any]:
        return {"mean": jnp.zeros(()), "count": jnp.zeros(())}

    def __call__(self, state, scores, mask):
        x, _ = alive(scores.astype(jnp.float32), mask)
        return spread(x - state["mean"], mask)

    def update(self, state, scores, mask):
        x, live = alive(scores.astype(jnp.float32), mask)
        rows = jnp.sum(live, dtype=jnp.float32)
        count = state["count"] + rows
        return {"mean": state["mean"] + self.step(state, x, live) / jnp.maximum(count, 1.0), "count": count}

    def step(self, state, x, live):
        return jnp.sum(jnp.where(live, x - state["mean"], 0.0))


@caught_by("advantage", "learns_to_remember")
@attrs.frozen(kw_only=True)
class NeverLearns(_Remembers):
    def update(self, state, scores, mask):
        return {"mean": state["mean"] * 1.0, "count": state["count"] * 1.0}


@caught_by("advantage", "learns_to_remember")
@attrs.frozen(kw_only=True)
class RunsAway(_Remembers):
    def update(self, state, scores, mask):
        x, live = alive(scores.astype(jnp.float32), mask)
        return {"mean": 1.5 * state["mean"] + jnp.mean(jnp.where(live, x, 0.0)), "count": state["count"] + 1.0}


@caught_by("advantage", "learns_to_remember")
@attrs.frozen(kw_only=True)
class CountsDown(_Remembers):
    def update(self, state, scores, mask):
        after = super().update(state, scores, mask)
        return after | {"count": state["count"] - 1.0}


@caught_by("advantage", "remembers_completions")
@attrs.frozen(kw_only=True)
class TheLastRowCounts(_Remembers):
    def step(self, state, x, live):
        return x[-1] - state["mean"]


@caught_by("advantage", "remembers_completions")
@attrs.frozen(kw_only=True)
class EmptyRowsCount(_Remembers):
    def update(self, state, scores, mask):
        x, _ = alive(scores.astype(jnp.float32), mask)
        return {"mean": 0.9 * state["mean"] + 0.1 * jnp.mean(x), "count": state["count"] + len(x)}


@caught_by("advantage", "remembers_completions")
@attrs.frozen(kw_only=True)
class NanOfNothing(_Remembers):
    def update(self, state, scores, mask):
        x, live = alive(scores.astype(jnp.float32), mask)
        mean = jnp.sum(x) / jnp.sum(live, dtype=jnp.float32)
        return {"mean": 0.9 * state["mean"] + 0.1 * mean, "count": state["count"] + 1.0}


@attrs.frozen(kw_only=True)
class _Controller:
    target: float = 0.1

    def init(self, coef: float) -> dict[str, Any]:
        return {"coef": jnp.float32(coef)}

    def coef(self, state: dict[str, Any]) -> Any:
        return state["coef"]

    def update(self, state: dict[str, Any], observed: Any, samples: Any) -> dict[str, Any]:
        moved = self.moved(state["coef"], jnp.clip(observed - self.target, -0.2, 0.2))
        return {"coef": jnp.where(samples > 0, moved, state["coef"]).astype(jnp.float32)}

    def moved(self, coef: Any, gap: Any) -> Any:
        return coef * (1 + 0.1 * gap)


@caught_by("kl_controller", "reacts")
@attrs.frozen(kw_only=True)
class TheWrongWay(_Controller):
    def moved(self, coef, gap):
        return coef * (1 - 0.1 * gap)


@caught_by("entropy_controller", "reacts")
@attrs.frozen(kw_only=True)
class MoreEntropyForMore(_Controller):
    """What is right for KL."""


@caught_by("kl_controller", "reacts")
@attrs.frozen(kw_only=True)
class BelowZero(_Controller):
    def moved(self, coef, gap):
        return coef + 0.1 * gap


@caught_by("kl_controller", "reacts")
@attrs.frozen(kw_only=True)
class Explodes(_Controller):
    def moved(self, coef, gap):
        return coef * jnp.exp(10 * gap)


@caught_by("kl_controller", "reacts")
@attrs.frozen(kw_only=True)
class NeverMoves(_Controller):
    def moved(self, coef, gap):
        return coef


@caught_by("lr_schedule", "not_zero_throughout")
@attrs.frozen(kw_only=True)
class WholeNumbers:
    def __call__(self, step: Any, total_steps: Any) -> Any:
        return (step // (total_steps + 1)).astype(jnp.float32)


@caught_by("optimizer", "keeps_its_state")
@attrs.frozen(kw_only=True)
class MomentsInHalf:
    def __call__(self, lr: Any) -> Any:
        return optax.adam(lr, mu_dtype=jnp.bfloat16)


@caught_by("optimizer", "keeps_its_state")
@attrs.frozen(kw_only=True)
class ForgetsItsMoments:
    def __call__(self, lr: Any) -> Any:
        inner = optax.adam(lr)
        return optax.GradientTransformation(inner.init, lambda g, s, p=None: (inner.update(g, s, p)[0], s))


COUNT = [0]


@caught_by("optimizer", "keeps_its_state")
@attrs.frozen(kw_only=True)
class CountsItsOwnSteps:
    def __call__(self, lr: Any) -> Any:
        def update(gradient: Any, state: Any, params: Any = None) -> Any:
            COUNT[0] += 1
            return jax.tree.map(lambda g: -lr * g / COUNT[0], gradient), state

        return optax.GradientTransformation(lambda params: (), update)


@caught_by("early_stopping", "spares_the_best")
def stops_the_best(curve, others):
    return bool(others) and all(curve[-1][1] > other[-1][1] for other in others)

"""Broken optimisers of many arrays, and makers of models that leave something out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optax
from annotated_types import Gt, Interval
from flax import nnx
from tests.kit.conformance.mutants import caught_by, right

import dovetail
from dovetail.errors import ConfigError
from dovetail_kit.conformance.suites.models import TINY


def _steps(init: Any, update: Any) -> optax.GradientTransformation:
    return optax.GradientTransformation(init, update)


def _scaled(lr: Any, norm: Any) -> optax.GradientTransformation:
    """Descent along gradients that are divided by what `norm` gives for each of them."""

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        return jax.tree.map(lambda g, n: -lr * g / (n + 1e-12), updates, norm(updates)), state

    return _steps(lambda params: optax.EmptyState(), update)


def _of_each(tree: Any) -> Any:
    return jax.tree.map(lambda g: jnp.sqrt(jnp.sum(g**2)), tree)


def _of_all(tree: Any) -> Any:
    return jax.tree.map(lambda g: optax.tree.norm(tree), tree)


@caught_by("optimizer", "norms_of_each_array")
def divides_by_the_norm_of_all(learning_rate):
    """θ ← θ - lr g / ‖g‖, with the norm of each array, not of all together."""
    return _scaled(learning_rate, _of_all)


@caught_by("optimizer", "norms_of_all_arrays")
def divides_by_the_norm_of_each(learning_rate):
    """θ ← θ - lr g / ‖g‖, ‖g‖ the global norm: that of all arrays together."""
    return _scaled(learning_rate, _of_each)


@right("optimizer")
def by_the_norm_of_each(learning_rate):
    """θ ← θ - lr g / ‖g‖, with the norm of each array, not of all together."""
    return _scaled(learning_rate, _of_each)


@caught_by("optimizer", "norms_of_each_array")
@attrs.frozen(kw_only=True)
class ClipsTogether:
    """Gradient descent.

    Attributes:
        max_norm: the largest norm that the gradient of each array may have.
    """

    max_norm: Annotated[float, Gt(0)] = 1.0

    def __call__(self, lr: Any) -> Any:
        return optax.chain(optax.clip_by_global_norm(self.max_norm), optax.sgd(lr))


@caught_by("optimizer", "norms_of_all_arrays")
@attrs.frozen(kw_only=True)
class ClipsApart:
    """Adam.

    Attributes:
        max_norm: the largest global norm that a gradient may have.
    """

    max_norm: Annotated[float, Gt(0)] = 1.0

    def __call__(self, lr: Any) -> Any:
        def update(updates: Any, state: Any, params: Any = None) -> Any:
            return jax.tree.map(lambda g, n: g * jnp.minimum(1.0, self.max_norm / n), updates, _of_each(updates)), state

        return optax.chain(_steps(lambda params: optax.EmptyState(), update), optax.adam(lr))


@right("optimizer")
def by_the_norm_of_all(learning_rate):
    """θ ← θ - lr g / ‖g‖, ‖g‖ the global norm: that of all arrays together."""
    return _scaled(learning_rate, _of_all)


@right("optimizer")
@attrs.frozen(kw_only=True)
class SignsOfAClippedMean:
    """Lion, of gradients that are clipped to a global norm; the scales of norms do not decay.

    Attributes:
        max_norm: the largest global norm of a gradient; None clips nothing.
    """

    max_norm: float | None = None

    def __call__(self, lr: Any) -> Any:
        clips = optax.identity() if self.max_norm is None else optax.clip_by_global_norm(self.max_norm)
        return optax.chain(clips, optax.lion(lr))


@right("optimizer")
@attrs.frozen(kw_only=True)
class Trusts:
    """LAMB: the norm of each layer's weights over that of its update, of gradients that are clipped to `max_norm`."""

    max_norm: Annotated[float, Gt(0)] = 1.0

    def __call__(self, lr: Any) -> Any:
        return optax.chain(optax.clip_by_global_norm(self.max_norm), optax.lamb(lr))


@caught_by("optimizer", "takes_any_tree")
def of_a_flat_dict(learning_rate):
    def update(updates, state, params=None):
        return {name: -learning_rate * g for name, g in updates.items()}, state

    return _steps(lambda params: optax.EmptyState(), update)


@caught_by("optimizer", "takes_any_tree")
def rows_for_columns(learning_rate):
    def step(g):
        return -learning_rate * (g / (1e-8 + jnp.sqrt(jnp.mean(g**2, axis=0))[:, None]) if g.ndim == 2 else g)

    return _steps(lambda params: optax.EmptyState(), lambda g, state, params=None: (jax.tree.map(step, g), state))


def _momentum(lr: Any, kept: Any, new: Any) -> optax.GradientTransformation:
    def update(updates: Any, state: Any, params: Any = None) -> Any:
        state = jax.tree.map(lambda m, g: kept * m + new * g, state, updates)
        return jax.tree.map(lambda m: -lr * m, state), state

    return _steps(lambda params: jax.tree.map(jnp.zeros_like, params), update)


@caught_by("optimizer", "a_larger_momentum_keeps_more")
def keeps_what_is_new(learning_rate, *, momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.9):
    return _momentum(learning_rate, 1 - momentum, momentum)


@right("optimizer")
def heavy_ball(learning_rate, *, momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.9):
    """m ← momentum m + g; θ ← θ - lr m."""
    return _momentum(learning_rate, momentum, 1.0)


def _counted(lr: Any, dtype: Any) -> optax.GradientTransformation:
    def init(params: Any) -> Any:
        return {"mean": jax.tree.map(jnp.zeros_like, params), "count": jnp.zeros((), dtype)}

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        count = state["count"] + jnp.ones((), dtype)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], updates)
        share = 1 - 0.9 ** jnp.maximum(count.astype(jnp.float32), 1.0)
        return jax.tree.map(lambda m: -lr * m / share, mean), {"mean": mean, "count": count}

    return _steps(init, update)


@caught_by("optimizer", "counts_for_long")
def counts_in_eight_bits(learning_rate):
    return _counted(learning_rate, jnp.int8)


@caught_by("optimizer", "counts_for_long")
def counts_in_bfloat16(learning_rate):
    return _counted(learning_rate, jnp.bfloat16)


@right("optimizer")
def counts_in_float32(learning_rate):
    """A corrected mean of gradients, whose steps are counted by a float."""
    return _counted(learning_rate, jnp.float32)


@attrs.frozen(kw_only=True)
class _Saves:
    """The built-in decoder, saved as NumPy's arrays."""

    epsilon: Annotated[float, Gt(0)] = 1e-6
    layers: Annotated[int, Gt(0)] = 2

    def make(self, vocab_size, *, rngs, place):
        return self.inner().make(vocab_size, rngs=rngs, place=place)

    def abstract(self, vocab_size):
        return self.inner().abstract(vocab_size)

    def inner(self):
        sizes = TINY | {"layers": self.layers, "norm_epsilon": self.epsilon}
        return dovetail.get("model", "decoder").bind(**sizes)

    def export(self, model: Any, folder: Path, *, adapter: bool, dtype: Any = None) -> list[Path]:
        if adapter:
            raise ConfigError("it has no adapters")
        folder.mkdir(parents=True, exist_ok=True)
        state = nnx.to_pure_dict(nnx.state(model, nnx.Param))
        arrays = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(state)}
        written = b"".join(np.asarray(self.kept(name, leaf, dtype)).tobytes() for name, leaf in arrays.items())
        (folder / "weights.bin").write_bytes(written)
        return [folder / "weights.bin"]

    def kept(self, name: str, leaf: Any, dtype: Any) -> Any:
        return leaf if dtype is None else leaf.astype(dtype)


@caught_by("model", "exports_in_the_type_asked_for", slow=True)
class DropsTheType(_Saves):
    def kept(self, name, leaf, dtype):
        return leaf


@caught_by("model", "exports_every_parameter", slow=True)
class LeavesOutItsNorms(_Saves):
    def kept(self, name, leaf, dtype):
        return super().kept(name, leaf, dtype) if leaf.ndim > 1 else jnp.zeros(())


@caught_by("model", "every_number_counts", slow=True)
class HasAnEpsilonOfItsOwn(_Saves):
    def inner(self):
        return dovetail.get("model", "decoder").bind(**TINY | {"layers": self.layers})


@caught_by("adapter", "all_of_it_learns", slow=True)
@attrs.frozen(kw_only=True)
class AddsWhatNobodyReads:
    def apply(self, model: Any, *, rngs: nnx.Rngs) -> Any:
        adapted = dovetail.get("adapter", "lora").bind(rank=2).apply(model, rngs=rngs)
        adapted.gate = nnx.LoRAParam(jnp.ones(TINY["width"]))
        return adapted


def _by_the_noise(learning_rate: Any, decay: Any) -> optax.GradientTransformation:
    """Descent along the mean over its spread, which at a decay of 0 is that of a single gradient: 0/0."""

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        mean = jax.tree.map(lambda m, g: decay * m + (1 - decay) * g, state[0], updates)
        square = jax.tree.map(lambda v, g: decay * v + (1 - decay) * g**2, state[1], updates)
        spread = jax.tree.map(lambda m, v: jnp.sqrt(jnp.maximum(v - m**2, 0.0)), mean, square)
        return jax.tree.map(lambda m, s: -learning_rate * m / s, mean, spread), (mean, square)

    def init(params: Any) -> Any:
        return jax.tree.map(jnp.ones_like, params), jax.tree.map(lambda x: 9.0 * jnp.ones_like(x), params)

    return _steps(init, update)


@caught_by("optimizer", "finite_within_its_range")
@dovetail.declares(undefined_at_rest=True)
def over_a_spread_that_may_be_zero(learning_rate, *, beta: Annotated[float, Interval(ge=0, lt=1)] = 0.9):
    """θ ← θ - lr m / s, m and s the mean that decays by beta and its spread, for a learning_rate lr."""
    return _by_the_noise(learning_rate, beta)


@right("optimizer")
@dovetail.declares(undefined_at_rest=True)
def over_a_spread(learning_rate, *, beta: Annotated[float, Interval(gt=0, lt=1)] = 0.9):
    """θ ← θ - lr m / s, m and s the mean that decays by beta and its spread, for a learning_rate lr."""
    return _by_the_noise(learning_rate, beta)

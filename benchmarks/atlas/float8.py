"""A single-file plugin: an engine that samples from weights of eight bits, which is not quite what is trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import attrs
import jax
import jax.numpy as jnp

import dovetail
from dovetail.errors import ConfigError
from dovetail.protocols import Weights

if TYPE_CHECKING:
    from dovetail.protocols import Completions, RolloutEngine, Sampling, Tokenizer

GREATEST = 448.0
"""Of float8_e4m3fn."""


@dovetail.hookimpl
def dovetail_components(register):
    register("rollout", "float8", "float8:Float8")


@attrs.frozen(kw_only=True)
class Float8:
    """Sampling in float8, as it is done to save time: matrices are rounded to e4m3, with a scale for each output.

    Args:
        inner: the engine that samples.
    """

    inner: Annotated[Any, dovetail.Chooses("rollout")] = "dovetail/vanilla"

    declares: ClassVar[Mapping[str, bool]] = {"batch_invariant": True, "versions": True, "placed": True}

    def check(self) -> None:
        """Check the engine that samples."""
        self.inner.check()

    def open(self, graphdef: Any, weights: Weights, tokenizer: Tokenizer) -> OpenFloat8:
        """Return the engine with rounded weights."""
        return OpenFloat8(self.inner.open(graphdef, rounded(weights), tokenizer))

    def open_folder(self, folder: Path, tokenizer: Tokenizer) -> OpenFloat8:
        """Refuse a folder, whose weights it does not get to round."""
        raise ConfigError("rollout 'float8' samples from the policy that is trained, not from a folder")


@attrs.frozen(eq=False)
class OpenFloat8:
    """An open engine; see `dovetail.protocols.RolloutEngine`."""

    inner: RolloutEngine

    def generate(self, prompt_tokens: Any, prompt_mask: Any, keys: Any, sampling: Sampling) -> Completions:
        """Sample one completion for each key."""
        return self.inner.generate(prompt_tokens, prompt_mask, keys, sampling)

    def sync(self, weights: Weights, version: int) -> None:
        """Use these weights, rounded."""
        self.inner.sync(rounded(weights), version)

    def close(self) -> None:
        """Close the engine that samples."""
        self.inner.close()


@jax.jit
def rounded(weights: Weights) -> Weights:
    """Round all matrices, whose last axis is that of the outputs, and no vector."""

    def each(leaf: jax.Array) -> jax.Array:
        if leaf.ndim < 2 or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        scale = jnp.maximum(jnp.max(jnp.abs(leaf), axis=-2, keepdims=True), 1e-12) / GREATEST
        return ((leaf / scale).astype(jnp.float8_e4m3fn).astype(leaf.dtype) * scale).astype(leaf.dtype)

    return jax.tree.map(each, weights)

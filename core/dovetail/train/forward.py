"""Forward passes: quantities of the next-token distribution at completion positions, and the critic's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from dovetail.protocols import LanguageModel
from dovetail.registry import Component

LOGITS_PER_CHUNK = 1 << 24
"""Logits alive at a time, in float32: 64 MiB, so [seq, token, vocab] is never materialised."""


def hidden_states(model: LanguageModel, batch: Mapping[str, Array]) -> Float[Array, "seq token width"]:
    """Return the hidden state from which each completion token was predicted."""
    prompt, completion = batch["prompt_tokens"], batch["tokens"]
    tokens = jnp.concatenate([prompt, completion], axis=1)
    visible = jnp.concatenate([batch["prompt_mask"], jnp.ones_like(completion, dtype=bool)], axis=1)
    hidden, _ = model(tokens[:, :-1], visible[:, :-1])
    return hidden[:, prompt.shape[1] - 1 :]


def quantities(
    graphdef: Any,
    params: Any,
    batch: Mapping[str, Array],
    wanted: Mapping[str, Component],
    temperature: Float[Array, ""],
) -> dict[str, Float[Array, "seq token"]]:
    """Evaluate `field` components inside a forward pass.

    Args:
        graphdef: the model's structure.
        params: its weights.
        batch: `prompt_tokens`, `prompt_mask`, `tokens`.
        wanted: name -> component reading some of `logits` (float32, divided by the temperature), `hidden_states`,
        `tokens`.
        temperature: the sampling temperature; 0 (greedy) counts as 1.

    Returns:
        One [seq, token] array per name. Logits are computed in chunks of positions and recomputed for the gradient.
    """
    model = nnx.merge(graphdef, params)
    hidden = hidden_states(model, batch)
    rows, columns, width = hidden.shape
    scale = jnp.where(temperature > 0, temperature, 1.0)

    def chunk(piece: tuple[Array, Array]) -> dict[str, Array]:
        states, tokens = piece
        offered = {"hidden_states": states, "tokens": tokens}
        if any("logits" in component.reads for component in wanted.values()):
            offered["logits"] = model.logits(states).astype(jnp.float32) / scale
        return {name: c(*(offered[read] for read in c.reads)) for name, c in wanted.items()}

    pieces = _cut(hidden.reshape(rows * columns, width), batch["tokens"].reshape(-1), model.vocab_size)
    if pieces[0].shape[0] == 1:
        found = {name: value[None] for name, value in chunk((pieces[0][0], pieces[1][0])).items()}
    else:
        found = jax.lax.map(jax.checkpoint(chunk), pieces)
    return {name: value.reshape(-1)[: rows * columns].reshape(rows, columns) for name, value in found.items()}


def _cut(hidden: Array, tokens: Array, vocab_size: int) -> tuple[Array, Array]:
    """Cut positions into equal chunks, the last one filled up."""
    positions = tokens.shape[0]
    size = min(positions, max(1, LOGITS_PER_CHUNK // vocab_size))
    count = -(-positions // size)
    filling = count * size - positions
    hidden = jnp.pad(hidden, ((0, filling), (0, 0))).reshape(count, size, hidden.shape[-1])
    return hidden, jnp.pad(tokens, (0, filling)).reshape(count, size)


class ValueModel(nnx.Module):
    """A decoder with a scalar head: the critic."""

    def __init__(self, trunk: nnx.Module, width: int) -> None:
        self.trunk = trunk
        self.head = nnx.Param(jnp.zeros((width,), jnp.float32))

    def __call__(self, batch: Mapping[str, Array]) -> Float[Array, "seq token"]:
        """Return the value of the state before each completion token."""
        hidden = hidden_states(self.trunk, batch)  # pyright: ignore[reportArgumentType]
        return hidden.astype(jnp.float32) @ self.head[...]


def values(graphdef: Any, params: Any, batch: Mapping[str, Array]) -> Float[Array, "seq token"]:
    """Return the critic's values at completion positions."""
    return nnx.merge(graphdef, params)(batch)


def by_micro_batch(function: Any, batch: Mapping[str, Array], size: int) -> dict[str, Array]:
    """Map a function of a batch over micro-batches of `size` rows, so that memory grows with the micro-batch only."""
    rows = batch["tokens"].shape[0]
    if size >= rows:
        return function(batch)
    return jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:])[:rows], jax.lax.map(function, split_rows(dict(batch), size))
    )


def split_rows(batch: dict[str, Array], size: int) -> dict[str, Array]:
    """Cut [seq, ...] arrays into [micro-batch, size, ...]; a ragged last one is filled with empty rows (zeros)."""
    rows = batch["tokens"].shape[0]
    filling = -rows % size

    def cut(array: Array) -> Array:
        padded = jnp.pad(array, [(0, filling)] + [(0, 0)] * (array.ndim - 1)) if filling else array
        return padded.reshape(-1, size, *array.shape[1:])

    return jax.tree.map(cut, batch)

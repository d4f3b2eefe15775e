"""Forward passes: quantities of the next-token distribution at completion positions, and the critic's values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int, Key, Shaped

from dovetail.arrays import full_precision
from dovetail.devices.mesh import ROWS, TOKENS, by_device, by_row, keep_rows_cut, parts_of, rows_cut
from dovetail.kinds.fields import LOGITS
from dovetail.plan.compared import KEPT
from dovetail.plan.routing import CHOICES
from dovetail.protocols import LanguageModel, Traits, ValueHead, Weights
from dovetail.step.packing import PACKED, pack, unpack
from dovetail.step.parts import Floats, Part

LOGITS_PER_CHUNK = 1 << 24
"""Number of float32 logits in memory at a time, 64 MiB, so that [seq, token, vocab] is never materialised."""


AGREEMENT = "choices/agreement"
"""A metric of a pass that replays choices: the share of them that the model would make itself."""


class Read(NamedTuple):
    """A model's state after processing prompts: the hidden state that predicts the next token, and the cache.

    If choices are replayed, `agreed` is the share of those at the last token that the model would make itself.
    """

    last: Float[Array, "prompt one width"]
    cache: Any
    agreed: Float[Array, "prompt one"] | None = None

    def of(self, rows: Int[Array, "seq"]) -> Read:
        """Return the state of the prompts with these indices."""
        prompts = self.last.shape[0]

        def take(array: Array) -> Array:
            if array.ndim == 0:
                return array
            taken = jnp.take(array.reshape(prompts, -1, *array.shape[1:]), rows, axis=0)
            return taken.reshape(-1, *array.shape[1:])

        return jax.tree.map(take, self)


Reads = Mapping[str, Read]
"""The models' states after processing prompts, by role."""


def read_prompts(model: LanguageModel, batch: Mapping[str, Array], dropout: Key[Array, ""] | None = None) -> Read:
    """Process each row's prompt; with a key, dropout depends on the key and the row's `draw_ids`."""
    prompt = batch["prompt_tokens"]
    keys = _keys(model, batch, dropout, _columns(prompt))
    cache, choices = model.init_cache(*prompt.shape), batch.get("prompt_choices")
    hidden, cache, agreed = _routed(model, choices, prompt, batch["prompt_mask"], cache, **keys)
    return Read(hidden[:, -1:], cache, None if agreed is None else agreed[:, -1:])


def _routed(
    model: Any, choices: Int[Array, "seq token choice"] | None, *inputs: Any, **also: Any
) -> tuple[Float[Array, "seq token width"], Any, Float[Array, "seq token"] | None]:
    """Call a model with these choices, if there are any; also return the share of them that it would make itself."""
    if choices is None:
        return *model(*inputs, **also), None
    hidden, cache, own = model(*inputs, **also, choices=choices)
    # -1 leaves the choice to the model, which then agrees with itself
    return hidden, cache, jnp.mean((own == choices) | (choices < 0), axis=2, dtype=jnp.float32)


def _keys(
    model: LanguageModel,
    batch: Mapping[str, Array],
    dropout: Key[Array, ""] | None,
    columns: Int[Array, "row position"],
    rows: Int[Array, "row position"] | None = None,
) -> dict[str, Array]:
    """Return a key for each position: that of a column, counted from the beginning of the prompt, of one of `rows`.

    So what is dropped depends neither on the other rows nor on where a completion is packed.
    """
    if dropout is None or not Traits.of(model).has_dropout:
        return {}
    of_rows = jax.vmap(jax.random.fold_in, (None, 0))(dropout, batch["draw_ids"])
    keys = of_rows[:, None] if rows is None else of_rows[rows]
    return {"keys": jax.vmap(jax.vmap(jax.random.fold_in))(jnp.broadcast_to(keys, columns.shape), columns)}


def _columns(array: Shaped[Array, "seq position"], begin: int = 0) -> Int[Array, "seq position"]:
    return jnp.broadcast_to(jnp.arange(begin, begin + array.shape[1], dtype=jnp.int32), array.shape)


class States(NamedTuple):
    """The hidden state from which each completion token was predicted.

    If choices are replayed, `agreed` is the share of those at the token before that the model would make itself.
    """

    hidden: Float[Array, "seq token width"]
    agreed: Float[Array, "seq token"] | None = None


def hidden_states(
    model: LanguageModel,
    batch: Mapping[str, Array],
    rows_per_prompt: int = 1,
    dropout: Key[Array, ""] | None = None,
    read: Read | None = None,
) -> States:
    """Return the hidden state from which each completion token was predicted.

    A prompt shared by `rows_per_prompt` consecutive rows is processed once for all of them; with `read`, each row
    continues a prompt that has already been processed. With a key, the dropout of a token depends on the key, its
    row's `draw_ids` and its column; that of a shared prompt on its first row's. If completions are packed, `read` is of
    the packed rows, and all hidden states are in one row in the order of `dovetail.step.packing.predicted`. If the
    batch has `choices` and `prompt_choices`, the model computes with these.
    """
    if PACKED in batch:
        assert read is not None, "packed rows continue prompts that have been processed"
        return _of_packed(model, batch, read, dropout)
    prompt, completion, choices = batch["prompt_tokens"], batch["tokens"], batch.get("choices")
    # padding is on the right, where no token that counts attends to it, so nothing has to be hidden
    written = jnp.ones_like(completion, dtype=bool)
    if rows_per_prompt == 1 and read is None:
        tokens = jnp.concatenate([prompt, completion], axis=1)
        visible = jnp.concatenate([batch["prompt_mask"], written], axis=1)
        keys = _keys(model, batch, dropout, _columns(tokens[:, :-1]))
        if choices is not None:
            choices = jnp.concatenate([batch["prompt_choices"], choices], axis=1)[:, :-1]
        # the last token predicts nothing that is trained on
        hidden, _, agreed = _routed(model, choices, tokens[:, :-1], visible[:, :-1], **keys)
        first = prompt.shape[1] - 1
        return States(hidden[:, first:], None if agreed is None else agreed[:, first:])
    if read is None:
        read = read_prompts(model, {name: array[::rows_per_prompt] for name, array in batch.items()}, dropout)
        first = _first_states(read, rows_per_prompt)
    else:
        first = States(read.last, read.agreed)
    # the prompt predicts it, and a model is not called with no tokens
    if completion.shape[1] == 1:
        return first
    keys = _keys(model, batch, dropout, _columns(completion[:, :-1], prompt.shape[1]))
    choices = None if choices is None else choices[:, :-1]
    hidden, _, agreed = _routed(model, choices, completion[:, :-1], written[:, :-1], prefix=read.cache, **keys)
    return jax.tree.map(lambda one, more: jnp.concatenate([one, more], axis=1), first, States(hidden, agreed))


def _of_packed(model: LanguageModel, batch: Mapping[str, Array], read: Read, dropout: Key[Array, ""] | None) -> States:
    packed, (seq, columns) = batch[PACKED], batch["tokens"].shape
    # -1 marks positions that hold nothing: any index will do for them, since their mask is empty
    there = jnp.maximum(packed, 0)
    keys = _keys(model, batch, dropout, batch["prompt_tokens"].shape[1] + there % columns, there // columns)
    tokens, choices = batch["tokens"].reshape(-1)[there], batch.get("choices")
    if choices is not None:
        choices = choices.reshape(seq * columns, -1)[there]
    texts = packed // columns
    hidden, _, agreed = _routed(model, choices, tokens, packed >= 0, prefix=read.cache, texts=texts, **keys)
    first = _first_states(read, seq // len(packed))

    def together(one: Array, more: Array) -> Array:
        return jnp.concatenate([x.reshape(1, -1, *x.shape[2:]) for x in (one, more)], axis=1)

    return jax.tree.map(together, first, States(hidden, agreed))


def _first_states(read: Read, rows_per_prompt: int) -> States:
    """Return the states that predict the first token of each row of a prompt."""
    return jax.tree.map(lambda x: jnp.repeat(x, rows_per_prompt, axis=0), States(read.last, read.agreed))


@attrs.frozen
class Model:
    """A model's structure and weights."""

    graphdef: Any
    weights: Weights

    def merge(self) -> Any:
        """Return the module."""
        return nnx.merge(self.graphdef, *self.weights)

    def in_full_precision(self) -> Model:
        """Return the model with its floating-point parameters converted to float32.

        A gradient accumulated over chunks has the type of the parameter, so this makes it a float32 sum. It also saves
        time on CPUs, which multiply in float32 and would convert frozen parameters again for each chunk.
        """
        trained, frozen = self.weights
        if jax.default_backend() == "cpu":
            frozen = jax.tree.map(lambda x: full_precision(x) if jnp.issubdtype(x.dtype, jnp.floating) else x, frozen)
        return Model(self.graphdef, Weights(jax.tree.map(full_precision, trained), frozen))


def quantities(
    model: Model,
    batch: Mapping[str, Array],
    wanted: Mapping[str, Part],
    temperature: Float[Array, ""],
    hyper: Mapping[str, Floats],
    *,
    beside: Mapping[str, Model] | None = None,
    rows_per_prompt: int = 1,
    dropout: Key[Array, ""] | None = None,
    positions: int | None = None,
    read: Read | None = None,
    read_beside: Reads | None = None,
) -> dict[str, Array]:
    """Evaluate `field` components inside a forward pass.

    Args:
        model: the model of the forward pass.
        batch: `prompt_tokens`, `prompt_mask`, `tokens`, and `mask` if a component reads it.
        wanted: name -> component that reads some of `logits` and those of other models (float32, divided by the
            temperature), `hidden_states`, `tokens`, `support`; with `mask`, it gets whole completions and no logits.
        temperature: the sampling temperature; 0 (greedy) counts as 1.
        hyper: the traced hyperparameters of components.
        beside: other models, by the name of the field with their logits: `ref_logits`.
        rows_per_prompt: number of consecutive rows that share a prompt; see `hidden_states`.
        dropout: a key if the model is being trained, which then also reads `draw_ids`.
        positions: number of positions whose logits are in memory at a time; None means as many as have
            `LOGITS_PER_CHUNK` logits.
        read: the model's state after each row's prompt, if the prompts have already been processed.
        read_beside: the same for the models in `beside`.

    Returns:
        One [seq, token] array per name (a component that reads `mask` may return any shape), and metrics as
        `NAME/METRIC`. Logits are computed in chunks of positions and recomputed for the gradient.

    Raises:
        PluginError: if a component's result does not have the shape of its positions.
    """
    merged = model.merge()
    states = hidden_states(merged, batch, rows_per_prompt, dropout, read)
    found: dict[str, Array] = {} if states.agreed is None else {AGREEMENT: unpack(batch, states.agreed)}
    of_completions = {name: part for name, part in wanted.items() if "mask" in part.component.reads}
    known = {**batch, "hidden_states": unpack(batch, states.hidden)}
    for name, part in of_completions.items():
        value, measured = part(known, hyper)
        found |= {name: value} | {f"{name}/{metric}": each for metric, each in measured.items()}
    by_position = {name: part for name, part in wanted.items() if name not in of_completions}
    if not by_position:
        return found
    read_by_them = {field for part in by_position.values() for field in part.component.reads}
    others = {name: other.merge() for name, other in (beside or {}).items() if name in read_by_them}
    prompts = read_beside or {}
    seen = {name: _seen(other, batch, rows_per_prompt, prompts.get(name)) for name, other in others.items()}
    by_token = {name: pack(batch, batch[name]) for name in ("tokens", KEPT) if name in batch}
    heads = dict(others)
    if LOGITS in read_by_them:
        heads[LOGITS] = merged if dropout is None else model.in_full_precision().merge()
    # greedy sampling has no distribution of its own; the log-probabilities are then those of the model
    scale = jnp.where(temperature > 0, temperature, 1.0)

    def evaluate(piece: dict[str, Array]) -> dict[str, Array]:
        piece = jax.tree.map(rows_cut, piece)
        offered = {name: piece[name] for name in ("hidden_states", *by_token)}
        for name, head in heads.items():
            predicting = piece["hidden_states" if name == LOGITS else name]
            offered[name] = head.logits(predicting).astype(jnp.float32) / scale
        return _evaluated(by_position, offered, hyper)

    arrays = {"hidden_states": states.hidden} | by_token | seen
    values = _in_chunks(evaluate, arrays, positions or LOGITS_PER_CHUNK // merged.vocab_size)
    return found | {name: unpack(batch, value) for name, value in values.items()}


def _seen(
    other: LanguageModel, batch: Mapping[str, Array], rows_per_prompt: int, read: Read | None
) -> Float[Array, "seq token width"]:
    """Return the hidden states of a model that the trained one is compared with, which the comparison does not train.

    It makes its own choices.
    """
    own = {field: array for field, array in batch.items() if field not in CHOICES}
    return jax.lax.stop_gradient(hidden_states(other, own, rows_per_prompt, read=read).hidden)


def _in_chunks(
    evaluate: Callable[[dict[str, Array]], dict[str, Array]], arrays: Mapping[str, Array], at_once: int
) -> dict[str, Array]:
    """Map a function of positions over chunks of `at_once` of them; return one [seq, token] array for each result.

    Nothing that a chunk computes is kept for the gradient: its logits are recomputed. Otherwise the backward pass would
    keep those of all chunks, [seq, token, vocab].
    """
    rows, columns = arrays["tokens"].shape
    pieces = {name: _cut(array, at_once) for name, array in arrays.items()}
    if pieces["tokens"].shape[0] == 1:
        values = jax.tree.map(lambda value: value[None], evaluate({name: piece[0] for name, piece in pieces.items()}))
    else:
        values = jax.lax.map(jax.checkpoint(evaluate), pieces)
    return {name: _together(value, rows, columns) for name, value in values.items()}


def _evaluated(
    wanted: Mapping[str, Part], offered: Mapping[str, Array], hyper: Mapping[str, Floats]
) -> dict[str, Array]:
    """Evaluate components on a chunk of positions; values and metrics have one number per position."""
    positions = offered["tokens"].shape
    found = {}
    for name, part in wanted.items():
        value, measured = part(offered, hyper)
        shape = "a dict" if isinstance(value, dict) else jnp.shape(value)
        if shape != positions:
            raise part.component.wrong(
                f"returned {shape} for {positions} positions; a field that reads logits or hidden states"
                " returns one number for each position, or reads 'mask' too and then sees whole completions"
            )
        found[name] = value
        with part.component.named():
            found |= {f"{name}/{metric}": jnp.broadcast_to(each, positions) for metric, each in measured.items()}
    return found


def _cut(array: Shaped[Array, "seq token ..."], at_once: int) -> Shaped[Array, "chunk position ..."]:
    """Cut positions into equal chunks with as many from each device; the last one is padded, as is the end of a row.

    So each device computes the logits of its own positions, `at_once` at a time on all devices together.
    """
    cp = parts_of(0, TOKENS)
    flat = by_device(_padded(array, -array.shape[1] % cp), cp)
    parts, positions = flat.shape[:2]
    size = min(positions, max(1, at_once // parts))
    count = -(-positions // size)
    by_chunk = jnp.swapaxes(_padded(flat, count * size - positions).reshape(parts, count, size, *array.shape[2:]), 0, 1)
    return by_chunk.reshape(count, parts * size, *array.shape[2:])


def _together(array: Shaped[Array, "chunk position"], rows: int, columns: int) -> Array:
    """Return the [seq, token] array of which these are the chunks."""
    cp = parts_of(0, TOKENS)
    parts, width = parts_of(rows, ROWS) * cp, -(-columns // cp) * cp
    by_part = jnp.swapaxes(array.reshape(len(array), parts, -1), 0, 1).reshape(parts, -1)
    return by_row(by_part[:, : rows * width // parts].reshape(-1), rows, cp)[:, :columns]


def _padded(array: Array, more: int) -> Array:
    """Append zeros to the second axis."""
    return jnp.pad(array, [(0, 0), (0, more)] + [(0, 0)] * (array.ndim - 2)) if more else array


class ValueModel(nnx.Module):
    """The critic, a decoder with a scalar head w · h + b; w and b are initially zero, or those of `head`."""

    def __init__(
        self,
        trunk: nnx.Module,
        width: int,
        head_type: type[nnx.Param[Any]] = nnx.Param,
        head: ValueHead | None = None,
    ) -> None:
        weight, bias = head or ValueHead(np.zeros(width), 0.0)
        self.trunk = trunk
        self.weight = head_type(jnp.asarray(weight, jnp.float32))
        self.bias = head_type(jnp.float32(bias))

    def __call__(
        self,
        batch: Mapping[str, Array],
        rows_per_prompt: int = 1,
        dropout: Key[Array, ""] | None = None,
        read: Read | None = None,
    ) -> Float[Array, "seq token"]:
        """Return the value of the state before each completion token."""
        hidden = hidden_states(self.trunk, batch, rows_per_prompt, dropout, read).hidden  # pyright: ignore[reportArgumentType]
        return unpack(batch, hidden.astype(jnp.float32) @ self.weight[...] + self.bias[...])


def values(
    graphdef: Any,
    weights: Weights,
    batch: Mapping[str, Array],
    rows_per_prompt: int = 1,
    dropout: Key[Array, ""] | None = None,
    read: Read | None = None,
) -> Float[Array, "seq token"]:
    """Return the critic's values at completion positions; `dropout` is a key if the critic is being trained."""
    return nnx.merge(graphdef, *weights)(batch, rows_per_prompt, dropout, read)


def by_micro_batch(function: Any, batch: Mapping[str, Array], size: int) -> dict[str, Array]:
    """Map a function of a batch over micro-batches of `size` rows, so that memory depends only on the micro-batch."""
    rows = batch["tokens"].shape[0]
    if size >= rows:
        return function(batch)
    return jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:])[:rows], jax.lax.map(function, split_rows(dict(batch), size))
    )


def split_rows(batch: dict[str, Array], size: int) -> dict[str, Array]:
    """Cut [seq, ...] arrays into [micro-batch, size, ...]; a ragged last one is padded with empty rows (zeros)."""
    rows = batch["tokens"].shape[0]
    filling = -rows % size

    def cut(array: Array) -> Array:
        padded = jnp.pad(array, [(0, filling)] + [(0, 0)] * (array.ndim - 1)) if filling else array
        return padded.reshape(-1, size, *array.shape[1:])

    return keep_rows_cut(jax.tree.map(cut, batch))

"""Micro-batches of similar length: rows are sorted, and each micro-batch is cut to the narrowest of a few widths.

With `train.packing`, a row holds several completions of a prompt; see `dovetail.step.packing`.

The widths follow from shapes, so a single compiled program has all of them; the number of micro-batches of each width
is a value in it. Results change only by rounding: the weights of the loss were computed on the whole mini-batch, random
numbers come from each row's own key, and a completion's first tokens do not depend on the tokens after them.

Sorting separates the completions of a prompt. Therefore prompts are processed first, some at a time, and completions
continue from the stored state of their prompt; its gradients are accumulated and propagated through the prompts once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import attrs
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dovetail.arrays import full_precision
from dovetail.devices.mesh import ROWS, keep_rows_cut, parts_of
from dovetail.kinds import FIELDS
from dovetail.plan.roles import INPUTS
from dovetail.step.algorithm import Sizes
from dovetail.step.forward import Reads, split_rows
from dovetail.step.packing import PACKED, Rows, first_fit, laid_out
from dovetail.step.parts import Sums, merge

PROMPT: Final = "prompt_numbers"
"""An extra field of micro-batches: for each row, packed or not, the index of the processed prompt that it continues."""

FEW: Final = 8
"""Rows of a micro-batch up to which narrower ones have more: adding up the gradient of each costs as much as some rows.
More are not worth the empty rows of the last micro-batch."""

Batch = Mapping[str, Array]


def widths(tokens: int, count: int) -> tuple[int, ...]:
    """Return equally spaced widths, the last of which is `tokens`.

    >>> widths(64, 4), widths(3, 8)
    ((16, 32, 48, 64), (1, 2, 3))
    """
    return tuple(sorted({-(-tokens * number // count) for number in range(1, count + 1)}))


def widths_of(sizes: Sizes, tokens: int) -> tuple[int, ...]:
    """Return the widths of rows for completions of at most `tokens` tokens."""
    # the first token of a packed completion is predicted by its prompt, so the row itself holds one position less
    return widths(tokens - 1 if sizes.segments > 1 else tokens, sizes.length_buckets)


def described(sizes: Sizes, tokens: int) -> str:
    """Describe how completions of at most `tokens` tokens are packed or cut; empty if they are neither.

    >>> sizes = Sizes(epochs=1, group_size=8, mini_batch_size=64, micro_batch_size=16, length_buckets=4)
    >>> described(sizes, 64)
    'sorted by length and cut to 16, 32, 48 or 64 tokens'
    >>> described(attrs.evolve(sizes, length_buckets=1, segments=8), 64)
    'up to 8 of a prompt packed in a row, in rows of 63 positions'
    """
    if not sizes.by_length:
        return ""
    *others, last = map(str, widths_of(sizes, tokens))
    choice = f"{', '.join(others)}{' or ' * bool(others)}{last}"
    if sizes.segments == 1:
        return f"sorted by length and cut to {choice} tokens"
    return f"up to {sizes.segments} of a prompt packed in a row, in rows of {choice} positions"


def fill(micro: Batch) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the number of positions of a micro-batch's rows that completions take, and that of all its positions.

    >>> fill({"mask": jnp.array([[True, False, True, False], [True, False, False, False]])})
    (Array(4., dtype=float32), Array(8., dtype=float32))
    """
    if PACKED in micro:
        taken, positions = jnp.sum(micro[PACKED] >= 0), micro[PACKED].size
    else:
        taken, positions = jnp.sum(row_lengths(micro)), micro["mask"].size
    return taken.astype(jnp.float32), jnp.float32(positions)


def row_lengths(batch: Batch) -> Int[Array, "seq"]:
    """Return the number of positions up to the last one that any mask includes.

    >>> row_lengths({"mask": jnp.array([[True, False, True, False], [False] * 4])})
    Array([3, 0], dtype=int32)
    """
    asked = batch["mask"] | batch["observed"] if "observed" in batch else batch["mask"]
    return jnp.max(jnp.where(asked, jnp.arange(1, asked.shape[1] + 1, dtype=jnp.int32), 0), axis=1)


class Arranged(NamedTuple):
    """The rows of a chunk, beginning with the longest; empty rows follow, so that any micro-batch can be cut from them.

    Attributes:
        completions: the indices of the completions in each row; an index past the last stands for none.
        prompts: the index of the prompt that each row continues.
        used: the number of positions that each row needs.
    """

    completions: Int[Array, "row segment"]
    prompts: Int[Array, "row"]
    used: Int[Array, "row"]


@attrs.frozen(kw_only=True)
class Buckets:
    """The division of a batch into chunks of prompts and micro-batches of sorted rows.

    Attributes:
        widths: widths of rows in tokens, from the narrowest to the full one.
        size: rows of a micro-batch of full width; if these are few, one of narrower rows has more.
        rows_per_prompt: number of consecutive completions of the batch that share a prompt.
        prompts: number of prompts in a chunk; the rows of a chunk are sorted together.
        segments: the greatest number of completions in a row; with more than one, rows are packed.
    """

    widths: tuple[int, ...]
    size: int
    rows_per_prompt: int
    prompts: int
    segments: int = 1

    @classmethod
    def of(cls, sizes: Sizes, batch: Batch) -> Buckets:
        """Return the division of a batch.

        A sorted micro-batch has half the rows of an unsorted one, and as many on each device, since rows that some
        device lacks are computed as padding. The tokens saved are used for the chunk's prompts,
        whose state stays in memory until all of their completions are done, so the memory needed does not grow.
        """
        (rows, tokens), prompt = batch["tokens"].shape, batch["prompt_tokens"].shape[1]
        unsorted, together = min(sizes.micro_batch_size, rows), sizes.rows_per_prompt
        parts = parts_of(unsorted, ROWS)
        # from shapes alone, as lengths are not known when this is compiled
        size = -(-max(1, unsorted // 2) // parts) * parts
        left = (unsorted - size) * tokens + -(-unsorted // together) * prompt
        at_once = max(1, left // prompt)
        # chunks of nearly equal size, because a small last one would be padded to the size of the others
        number = -(-rows // together)
        chunks = -(-number // at_once)
        return cls(
            widths=widths_of(sizes, tokens),
            size=size,
            rows_per_prompt=together,
            prompts=-(-number // chunks),
            segments=sizes.segments,
        )

    def chunks(self, batch: Batch) -> dict[str, Array]:
        """Cut a batch into [chunk, row, ...], each with the completions of `prompts` prompts."""
        return split_rows(dict(batch), self.prompts * self.rows_per_prompt)

    def prompts_of(self, batch: Batch) -> dict[str, Array]:
        """Return the prompt fields of a chunk, one row per prompt."""
        names = [name for name in ("prompt_tokens", "prompt_mask", "prompt_choices", "draw_ids") if name in batch]
        return {name: batch[name][:: self.rows_per_prompt] for name in names}

    def visit(self, batch: Batch, carry: Any, see: Callable[[Any, Int[Array, "seq"], dict[str, Array]], Any]) -> Any:
        """Return the carry after `see(carry, completions, micro)` for every micro-batch, beginning with the longest.

        `completions` are their indices in the batch. A micro-batch has the width that its longest row needs. Rows
        without tokens are left out; the last micro-batch is padded with them.
        """
        # one loop per width, each with its own shapes; how often each runs is a value, so no lengths compile anew
        arranged, at = self._arranged(batch), jnp.int32(0)
        for width, narrower in zip(self.widths[::-1], (*self.widths[-2::-1], 0), strict=True):
            rows = self._rows_of(width)

            def is_next(state: tuple[Any, Any], narrower: int = narrower) -> Any:
                return arranged.used[state[0]] > narrower

            def one(state: tuple[Any, Any], width: int = width, rows: int = rows) -> tuple[Any, Any]:
                at, carry = state
                cut_out = Arranged(*(jax.lax.dynamic_slice_in_dim(array, at, rows) for array in arranged))
                micro = self._micro(batch, cut_out, width)
                return at + rows, see(carry, cut_out.completions.reshape(-1), micro)

            at, carry = jax.lax.while_loop(is_next, one, (at, carry))
        return carry

    def _rows_of(self, width: int) -> int:
        """Return the number of rows in a micro-batch of some width."""
        return self.size * min(self.widths[-1] // width, max(1, FEW // self.size))

    def widest(self, batch: Batch) -> Any:
        """Return the shapes of a micro-batch of the widest rows."""

        def first() -> dict[str, Array]:
            arranged = Arranged(*(array[: self.size] for array in self._arranged(batch)))
            return self._micro(batch, arranged, self.widths[-1])

        return jax.eval_shape(first)

    def _arranged(self, batch: Batch) -> Arranged:
        rows = self._rows(row_lengths(batch))
        count = len(rows.used)
        order = jnp.argsort(rows.used, stable=True, descending=True).astype(jnp.int32)
        # a slice that reached past the end would be moved back by JAX and take rows twice
        order = jnp.pad(order, (0, self._rows_of(self.widths[0])), constant_values=count)

        def take(array: Array, fill: int) -> Array:
            return jnp.take(array, order, axis=0, mode="fill", fill_value=fill)

        # there are as many rows as completions, so both have the same prompts
        prompts = jnp.arange(count, dtype=jnp.int32) // self.rows_per_prompt
        return Arranged(take(rows.completions, count), take(prompts, 0), take(rows.used, 0))

    def _rows(self, lengths: Int[Array, "seq"]) -> Rows:
        if self.segments > 1:
            return first_fit(lengths, self.rows_per_prompt, self.widths[-1], self.segments)
        return Rows(jnp.arange(len(lengths), dtype=jnp.int32)[:, None], lengths)

    def _micro(self, batch: Batch, arranged: Arranged, width: int) -> dict[str, Array]:
        """Return a micro-batch of rows of `width` tokens; if they are packed, their completions stay whole."""
        completions = arranged.completions.reshape(-1)
        taken = {
            name: jnp.take(array, completions, axis=0, mode="fill", fill_value=0) for name, array in batch.items()
        } | {PROMPT: arranged.prompts}
        # sorting has moved rows between devices; the compiler is told again that each device computes some of them
        micro = {name: x[0] for name, x in keep_rows_cut({name: x[None] for name, x in taken.items()}).items()}
        if self.segments == 1:
            return cut(micro, width)
        lengths = row_lengths(micro).reshape(-1, self.segments)
        return micro | {PACKED: laid_out(lengths, width, micro["tokens"].shape[1])}


def cut(micro: Batch, width: int) -> dict[str, Array]:
    """Return a micro-batch with completions cut to `width` tokens.

    >>> micro = {"tokens": jnp.zeros((2, 4)), "turn_mask": jnp.zeros((2, 4)), "mine": jnp.zeros((2, 4))}
    >>> {name: array.shape[1] for name, array in cut(micro, 3).items()}
    {'tokens': 3, 'turn_mask': 4, 'mine': 3}
    """
    tokens = micro["tokens"].shape[1]

    def of_tokens(name: str, array: Array) -> bool:
        if array.ndim < 2 or array.shape[1] != tokens or name.startswith(_OTHERS):
            return False
        return name not in FIELDS or FIELDS[name].shape.startswith("[seq, token")

    return {name: array[:, :width] if of_tokens(name, array) else array for name, array in micro.items()}


_OTHERS: Final = ("prompt_", *(inputs.prefix for inputs in INPUTS.values() if inputs.prefix))
"""Prefixes of the names of fields that do not belong to completions."""

Read = Callable[[Any, dict[str, Array]], Reads]
LossFn = Callable[[Any, dict[str, Array], Reads], tuple[Float[Array, ""], Sums]]


def map_by_length(
    read: Callable[[dict[str, Array]], Reads],
    function: Callable[[Reads, dict[str, Array]], dict[str, Array]],
    batch: Batch,
    buckets: Buckets,
) -> dict[str, Array]:
    """Return [seq, ...] arrays from a function of micro-batches; they are zero at positions that were cut off."""

    def chunk(piece: dict[str, Array]) -> dict[str, Array]:
        reads = read(buckets.prompts_of(piece))
        shapes = jax.eval_shape(lambda micro: function(reads, micro), buckets.widest(piece))
        kept = jax.tree.map(lambda like: jnp.zeros((len(piece["tokens"]), *like.shape[1:]), like.dtype), shapes)

        def see(kept: Any, completions: Int[Array, "seq"], micro: dict[str, Array]) -> Any:
            return jax.tree.map(
                lambda all_, x: all_.at[completions].set(_grown(x, (len(x), *all_.shape[1:])), mode="drop"),
                kept,
                function(reads, micro),
            )

        return buckets.visit(piece, kept, see)

    pieces = buckets.chunks(batch)
    if len(pieces["tokens"]) == 1:
        return chunk(dict(batch))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[: len(batch["tokens"])], jax.lax.map(chunk, pieces))


def _grown(array: Array, shape: tuple[int, ...]) -> Array:
    return jnp.pad(array, [(0, whole - size) for whole, size in zip(shape, array.shape, strict=True)])


def accumulate_by_length(
    loss_fn: LossFn, read: Read, params: Any, batch: Batch, buckets: Buckets
) -> tuple[Any, Float[Array, ""], Sums]:
    """Return the same as `dovetail.step.gradients.accumulate`: gradient, loss and metric sums of a mini-batch."""

    def chunk(piece: dict[str, Array]) -> tuple[Any, Array, Sums]:
        prompts = buckets.prompts_of(piece)
        floats, back, rest = jax.vjp(lambda p: _floats_apart(read(p, prompts)), params, has_aux=True)

        def loss(params: Any, floats: Any, micro: dict[str, Array]) -> tuple[Array, Sums]:
            return loss_fn(params, micro, _joined(floats, rest))

        def one(micro: dict[str, Array]) -> tuple[Any, Array, Sums]:
            # the prompts' states count as data (1), so that their backward pass runs once and not for every micro-batch
            (value, metrics), grads = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, floats, micro)
            return jax.tree.map(full_precision, grads), value, metrics

        zeros = _zeros(jax.eval_shape(one, buckets.widest(piece)))
        (grads, kept), value, metrics = buckets.visit(piece, zeros, lambda sums, _, micro: _added(sums, one(micro)))
        # summed in float32, but a pullback takes cotangents of the type of its outputs
        (through_prompts,) = back(jax.tree.map(lambda x, like: x.astype(like.dtype), kept, floats))
        return jax.tree.map(lambda x, more: x + full_precision(more), grads, through_prompts), value, metrics

    pieces = buckets.chunks(batch)
    if len(pieces["tokens"]) == 1:
        return chunk(dict(batch))
    # metrics are sums whose names only a trace tells, and a scan needs its carry beforehand
    shapes = jax.eval_shape(chunk, jax.tree.map(lambda x: x[0], pieces))
    total, _ = jax.lax.scan(lambda sums, piece: (_added(sums, chunk(piece)), None), _zeros(shapes), pieces)
    return total


def _added(sums: Any, found: Any) -> Any:
    *before, metrics = sums
    *more, measured = found
    return (*jax.tree.map(jnp.add, tuple(before), tuple(more)), merge(metrics, measured))


def _zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), shapes)


def _floats_apart(tree: Any) -> tuple[list[Any], Any]:
    """Return the floating-point arrays of a tree, and the data with which `_joined` restores the tree."""
    leaves, structure = jax.tree.flatten(tree)
    is_float = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
    floats = [leaf for leaf, kept in zip(leaves, is_float, strict=True) if kept]
    others = [None if kept else leaf for leaf, kept in zip(leaves, is_float, strict=True)]
    return floats, jax.tree_util.Partial(lambda *others: (structure, others), *others)


def _joined(floats: list[Any], rest: Any) -> Any:
    structure, others = rest()
    following = iter(floats)
    return jax.tree.unflatten(structure, [next(following) if leaf is None else leaf for leaf in others])

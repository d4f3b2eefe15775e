"""What is claimed of every component that maps fields to arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.errors import listing
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.arrays import LEARNT, ArrayCase, finite, on_batch, same, same_results, without_key
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject

PER_TOKEN = ("advantage", "correction", "kl", "loss_agg", "policy_loss", "reward_shaping", "loss_mask", "value_loss")
"""Kinds that return a value for each token."""
ZERO_OUTSIDE = tuple(kind for kind in PER_TOKEN if kind != "kl")
ARRAYS = (*PER_TOKEN, "field", "group_filter")
BOOLEAN = ("group_filter", "loss_mask")
GARBAGE = (np.nan, np.inf, 1e30, -1e30)
ORDER = np.array([3, 0, 5, 7, 2, 4, 6, 1])


@check(*ARRAYS, when=on_batch, mend="Return one float32 number for each token, without summing up.")
def shapes(subject: Subject) -> None:
    """Values are float32 with a number for each token, metrics have none, or one for each completion or token.

    What adds tokens up is the aggregation, whose weights are computed on the whole mini-batch before it is split: a
    loss that sums or averages by itself is normalised twice, and wrongly under gradient accumulation.
    """
    values, metrics = ArrayCase.of(subject).announced()
    rows, tokens = batch.ROWS, batch.TOKENS
    wanted = (rows,) if subject.component.kind == "group_filter" else (rows, tokens)
    for number, value in enumerate(values if subject.component.kind != "field" else ()):
        if value.shape != wanted:
            raise Failed(f"value {number} has shape {list(value.shape)}, not {list(wanted)}")
        is_bool = subject.component.kind in BOOLEAN or (subject.component.kind == "correction" and number == 1)
        if value.dtype != np.float32 and not (is_bool and value.dtype == bool):
            raise Failed(f"value {number} has type {value.dtype}, not float32")
    for name, metric in metrics.items():
        if metric.shape not in ((), (rows,), (rows, tokens)):
            raise Failed(f"the metric '{name}' has shape {list(metric.shape)}")


@check(*ARRAYS, when=on_batch, mend="Look for a division by a count that may be zero, or a logarithm of zero.")
def finite_results(subject: Subject) -> None:
    """Ordinary input gives finite values and metrics, a completion without policy tokens included."""
    case = ArrayCase.of(subject)
    result = case.run(case.fields())
    mask = case.fields()["mask"]
    for value in (*case.first().values, *result.values):
        finite(value if subject.component.kind in ZERO_OUTSIDE else _seen(value, mask), "the value")
    for name, metric in result.metrics.items():
        finite(metric, f"the metric '{name}'")


@check(*ZERO_OUTSIDE, mend="End with jnp.where(mask, value, 0.0).")
def zero_outside_the_mask(subject: Subject) -> None:
    """Values are exactly zero outside the mask.

    Padding and the tokens of tools would count in sums and metrics.
    """
    case = ArrayCase.of(subject)
    mask = case.fields()["mask"]
    for value in case.run(case.fields()).values:
        if value.shape == mask.shape and value[~mask].any():
            row, token = np.argwhere((value != 0) & ~mask)[0]
            raise Failed(f"value[{row}, {token}] is {value[row, token]:.6g}, and the mask is false there")


@check(
    *ARRAYS,
    when=on_batch,
    mend="Replace inputs before any arithmetic: x = jnp.where(mask, x, 0.0). Multiplying by the mask keeps NaN, and the"
    " derivative of a discarded exp(NaN) is NaN too.",
)
def garbage(subject: Subject) -> None:
    """NaN, infinity and ±1e30 outside the mask, and in the scores of empty rows, change neither value nor gradient.

    What lies there is whatever the model said of padding: one such number makes the whole update NaN.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    clean = case.run(batch.spoilt(fields, 0.0))
    # eagerly too: compiling makes of some products with a mask what they should have been
    eager, _ = case.second()
    for ours, theirs in zip(eager.values, clean.values, strict=True):
        seen = fields["mask"] if ours.shape[:2] == fields["mask"].shape else fields["mask"].any(axis=1)
        same(ours, theirs, "with nan outside the mask: the value", where=seen if ours.ndim else True)
    for value in GARBAGE:
        result = case.run(batch.spoilt(fields, value))
        same_results(result, clean, f"with {value:g} outside the mask", where=fields["mask"])
        for name, gradient in result.gradients.items():
            same(gradient, clean.gradients[name], f"with {value:g} outside the mask: the gradient by {name}")


@check(*ARRAYS, when=without_key, mend="Divide by counts of the mask, never by a width; and mask before reducing.")
def padding(subject: Subject) -> None:
    """Columns of padding on the right change nothing.

    How wide a batch is depends on its longest completion, so the same completion would count differently from step to
    step: a division by the padded width is the usual cause.
    """
    case = ArrayCase.of(subject)
    if not _fits_others(case):
        _compare_other_shape(case, np.arange(batch.ROWS), 3, "with three more columns of padding: the value")


@check(*ARRAYS, when=without_key, mend="Count rows with jnp.any(mask, axis=-1), and use these counts.")
def empty_rows(subject: Subject) -> None:
    """A completion without policy tokens counts nowhere: leaving it out changes nothing for the others.

    Filters and abstaining rewards empty the masks of rows and leave them in the batch. Where such a row still counts,
    it shifts the baseline of its group, or dilutes a mean.
    """
    case = ArrayCase.of(subject)
    if not _fits_others(case):
        _compare_other_shape(case, _live_rows(case), 0, "without the empty row: the value")


def _live_rows(case: ArrayCase) -> np.ndarray:
    return np.flatnonzero(case.fields()["mask"].any(axis=1))


def _fits_others(case: ArrayCase) -> bool:
    """Tell whether it gives the same without the empty row *and* with padding; if not, each is looked at by itself."""

    def fits() -> bool:
        try:
            _compare_other_shape(case, _live_rows(case), 3, "")
        except Failed:
            return False
        return True

    return case.subject.once("fits others", fits)


def _compare_other_shape(case: ArrayCase, rows: np.ndarray, columns: int, what: str) -> None:
    fields = case.fields()
    mask = fields["mask"][rows]
    other = case.eager(batch.take_rows(batch.widened(fields, columns), rows))
    for ours, theirs in zip(other.values, case.run(fields).values, strict=True):
        cut = ours[:, : batch.TOKENS] if ours.ndim > 1 and ours.shape[1] == batch.TOKENS + columns else ours
        kept = theirs[rows] if theirs.ndim and theirs.shape[0] == batch.ROWS else theirs
        same(cut, kept, what, where=mask if kept.shape[:2] == mask.shape else True)


@check(*ARRAYS, when=on_batch, mend="Guard every division: x / jnp.maximum(count, 1).")
def all_masked(subject: Subject) -> None:
    """A batch without any policy token gives zeros, and zero gradients, not NaN.

    A filter may leave nothing of a micro-batch, which then must do nothing.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    empty = batch.spoilt(batch.with_mask(fields, np.zeros_like(fields["mask"])), np.nan)
    result = case.run(empty | {"weights": np.ones_like(fields["weights"])} if subject.component.kind != "kl" else empty)
    kind = subject.component.kind
    for value in result.values if kind in ZERO_OUTSIDE else ():
        if (value != 0).any():
            raise Failed(f"the value is {value[value != 0].flat[0]:.6g} somewhere")
    for name, metric in result.metrics.items():
        finite(metric, f"the metric '{name}'")
    for name, gradient in result.gradients.items():
        if (gradient != 0).any() and kind in LEARNT and kind != "kl":
            raise Failed(f"the gradient by {name} is {gradient[gradient != 0].flat[0]:.6g} somewhere")


@check(*ARRAYS, when=without_key, mend="Never rely on where a row stands; group by group_ids with segment sums.")
def row_order(subject: Subject) -> None:
    """Completions in another order give the same results in that order.

    Batches are shuffled between epochs. reshape(-1, group_size) is the usual cause: it takes neighbours for a group.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    shuffled = case.run(batch.take_rows(fields, ORDER))
    for ours, theirs in zip(shuffled.values, case.run(fields).values, strict=True):
        moved = theirs[ORDER] if theirs.ndim and theirs.shape[0] == batch.ROWS else theirs
        seen = fields["mask"][ORDER] if moved.shape[:2] == fields["mask"].shape else True
        same(ours, moved, "with rows in another order: the value", where=seen)


@check(
    *ARRAYS, when=on_batch, reads=["group_ids"], mend="Number the groups first: jnp.unique(ids, return_inverse=True)."
)
def group_labels(subject: Subject) -> None:
    """The labels of groups mean nothing, be they negative, huge, or far apart.

    Labels used as indices read other groups' numbers, or none: JAX clamps what is out of bounds without a word.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    labels = {5: 2**31 - 1, -3: 0, 40: -(2**31)}
    other = np.array([labels[label] for label in fields["group_ids"].tolist()], np.int32)
    expected = case.run(fields)
    same_results(case.run(fields | {"group_ids": other}), expected, "under other labels", where=fields["mask"])


@check(*ARRAYS, when=on_batch, mend="Cast inputs first: x.astype(jnp.float32), float64 aside.")
def half_precision(subject: Subject) -> None:
    """bfloat16 in, float32 out, with the arithmetic in float32.

    Sums and exponentials in bfloat16 keep three digits, and the model's own dtype decides how good the loss is.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    names = [n for n, v in fields.items() if batch.is_float(v) and n not in ("weights", "logits", "ref_logits")]
    half = fields | {name: np.asarray(fields[name]).astype(jnp.bfloat16) for name in names}
    result = case.eager(half)
    for what, value in [("the value", v) for v in result.values] + [(f"'{k}'", v) for k, v in result.metrics.items()]:
        if value.dtype.name in ("bfloat16", "float16"):
            raise Failed(f"{what} is {value.dtype}")
    rounded = case.run(fields | {name: half[name].astype(np.float32) for name in names})
    for ours, theirs in zip(result.values, rounded.values, strict=True):
        seen = fields["mask"] if ours.shape == fields["mask"].shape else True
        same(ours, theirs, "with bfloat16 inputs: the value", where=seen, within=1e-4)


@check(*ARRAYS, when=on_batch, mend="Use jnp.where and jax.lax.cond instead of if, and jnp instead of np and float().")
def jit(subject: Subject) -> None:
    """It can be compiled, and gives the same as eagerly.

    The engine compiles every step. Python that looks at a number while it is traced, `if`, float(), np.asarray, cannot
    be compiled.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    try:
        compiled = case.compiled(fields)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise Failed(f"it cannot be traced: {str(error).strip().splitlines()[0]}") from None
    same_results(compiled, case.first(), "compiled against eager", where=fields["mask"])


@check(*ARRAYS, when=on_batch, mend="Take hyperparameters as arrays: jnp functions instead of if, float() and int().")
def traced_numbers(subject: Subject) -> None:
    """Other data and other float hyperparameters run in the program that was compiled first.

    Trials of a sweep that differ in numbers share one executable; else each compiles its own, for minutes on a real
    model. `Annotated[float, dovetail.STATIC]` marks one that decides a shape.
    """
    case = ArrayCase.of(subject)
    try:
        case.run(case.fields())
    except Inapplicable:
        case.constant(case.fields())  # if that cannot be compiled either, it is not for the numbers
        raise Failed(f"it can be compiled only with {listing(subject.floats)} as constants") from None
    case.run(case.fields(seed=1), {name: np.float32(value * 0.9) for name, value in subject.floats.items()})
    if case.traces != 1:
        raise Failed(f"it was traced {case.traces} times")


@check(*ARRAYS, when=on_batch, mend="Return new arrays, and take randomness from a PRNG key: read the field 'key'.")
def purity(subject: Subject) -> None:
    """It changes no argument, and draws no number from a global generator.

    Compiled it would run once and never again: numbers drawn while it is traced are the same at every step.
    """
    _, changed = ArrayCase.of(subject).second()
    if changed:
        raise Failed(f"a call changes {listing(changed)}")


@check(*ARRAYS, when=on_batch, mend="Keep nothing between calls; an estimator that remembers reads the field 'state'.")
def determinism(subject: Subject) -> None:
    """The same input gives the same bits, whatever was computed in between.

    A run could not be resumed bit for bit, nor two arms of an A/B compared.
    """
    case = ArrayCase.of(subject)
    mask = case.fields()["mask"]
    first, (again, _) = case.first(), case.second()
    if any(
        _seen(a, mask).tobytes() != _seen(b, mask).tobytes() for a, b in zip(again.values, first.values, strict=True)
    ):
        again = case.eager(case.fields())  # the second call had other numbers outside the mask
        for ours, theirs in zip(again.values, first.values, strict=True):
            same(ours, theirs, "called again, the value", within=0.0)
    compiled, other = (case.run(case.fields()) for _ in range(2))
    for ours, theirs in zip(compiled.values, other.values, strict=True):
        same(ours, theirs, "compiled and called again, the value", within=0.0, where=case.fields()["mask"].any(axis=1))


def _seen(value: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return what of a value anybody looks at."""
    if value.shape[:2] == mask.shape:
        return value[mask]
    return value[mask.any(axis=1)] if value.shape[:1] == mask.shape[:1] else value


@check(*ARRAYS, when=on_batch, mend="Use operations on arrays, with axis=-1 counted from the end.")
def vmap(subject: Subject) -> None:
    """Several batches at once, under jax.vmap, give what each gives alone.

    A sweep trains trials that differ only in numbers side by side.
    """
    case = ArrayCase.of(subject)
    batches = [case.fields(seed) for seed in (0, 1)]
    stacked = jax.tree.map(lambda *values: jnp.stack([jnp.asarray(v) for v in values]), *batches)

    def together(fields: Any) -> Any:
        return jax.vmap(lambda each: case._call(each, subject.floats)[0])(fields)

    shapes = [value.shape for value in jax.eval_shape(together, stacked)]
    expected = [(2, *value.shape) for value in case.run(batches[0]).values]
    if shapes != expected:
        raise Failed(f"two batches give shapes {shapes} instead of {expected}")
    if subject.component.kind not in LEARNT:  # JAX's own rules do the rest
        return
    found = together(stacked)
    for number, fields in enumerate(batches):
        for ours, theirs in zip(found, case.run(fields).values, strict=True):
            same(ours[number], theirs, f"batch {number} of two: the value", where=fields["mask"])


@check(*ARRAYS, mend="Correct the spelling, or register a component of kind 'field' that provides it.")
def fields_are_known(subject: Subject) -> None:
    """Every field that it reads is provided: by the engine, or by a component of kind 'field'.

    Positional parameters are fields; hyperparameters stand after a `*`.
    """
    known = batch.known_fields()
    for name in subject.component.reads:
        if name != "state":
            batch.field(name, known)

"""Invariances: to garbage outside the mask, padding, empty rows, the order of rows, and the labels of groups."""

from __future__ import annotations

import numpy as np

from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import LEARNT, ArrayCase, draws_nothing, on_batch, without_key
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import Result, finite, read_where, same, same_results
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.hyperparameters import own_numbers, tries
from dovetail_kit.conformance.suites.values import ARRAYS, ZERO_OUTSIDE

GARBAGE = (np.nan, np.inf, 1e30, -1e30)
EMPTIED = 1
"""A row of a group of two, whose rows are emptied together."""
ORDER = np.array([3, 0, 5, 7, 2, 4, 6, 1])


@check(
    *ARRAYS,
    when=on_batch,
    fix="Replace inputs before any arithmetic: x = jnp.where(mask, x, 0.0). Multiplying by the mask keeps a NaN, and so"
    " does the derivative of an exp(NaN) whose value is discarded.",
)
def garbage(subject: Subject) -> None:
    """NaN, infinity and ±1e30 outside the mask, and in the scores of empty rows, change neither value nor gradient.

    The model's outputs on padding are there; a single such number would turn the whole update into NaN.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    mask = fields["mask"]
    spared = batch.spoilt(fields, 0.0)
    clean = case.run(spared)
    # Also without compiling: XLA may turn a product with the mask into the selection that it should have been.
    eager, _ = case.second()
    for ours, theirs in zip(eager.values, clean.values, strict=True):
        same(ours, theirs, "with nan outside the mask: the value", where=read_where(ours, mask))
    for value in GARBAGE:
        dirty = batch.spoilt(fields, value)
        try:
            _same_learning(case.run(dirty), clean, f"with {value:g} outside the mask", mask)
        except Failed:
            for name in [name for name in dirty if dirty[name] is not fields[name]]:
                alone = case.run(spared | {name: dirty[name]})
                _same_learning(alone, clean, f"with {value:g} outside the mask in '{name}' alone", mask)
            raise
    _unread_with_other_numbers(subject, case, fields)


def _unread_with_other_numbers(subject: Subject, case: ArrayCase, fields: batch.Fields) -> None:
    """Compare for other values of each float, too: a threshold may be below all ordinary numbers."""
    spared, *spoilt = ((value, batch.spoilt(fields, value)) for value in (0.0, np.inf, 1e30))
    for name in own_numbers(subject):
        for value in tries(subject, name):
            floats = {**subject.floats, name: np.float32(value)}
            clean = case.run(spared[1], floats)
            for garbage, dirty in spoilt:
                found = case.run(dirty, floats)
                told = f"with {name} = {value:g}, and {garbage:g} outside the mask"
                same_results(found, clean, told, mask=fields["mask"])


def _same_learning(found: Result, clean: Result, when: str, mask: np.ndarray) -> None:
    """Compare values, metrics and gradients."""
    same_results(found, clean, when, mask=mask)
    for name, gradient in found.gradients.items():
        same(gradient, clean.gradients[name], f"{when}: the gradient by {name}")


@check(
    *ARRAYS,
    when=lambda component: on_batch(component) and bool({"tokens", "turns"} & {*component.reads}),
    fix="Look at ids and at numbers of turns inside the mask only, and count what is inside.",
)
def numbers_outside_the_mask(subject: Subject) -> None:
    """The turn numbers of tokens outside the mask, and the ids of padding, change nothing.

    Padding has the number of some turn. If it were counted, that turn would be longer, and its mean smaller.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    expected = case.run(fields)
    for number in (1, 10**6, -1):
        found = case.run(batch.renumbered(fields, number))
        same_results(found, expected, f"with {number} outside the mask", mask=fields["mask"])


@check(
    *ARRAYS,
    when=draws_nothing,
    unless="by_position",
    fix="Count policy tokens, jnp.cumsum(mask), instead of positions; carry traces across what the mask leaves out.",
)
def holes(subject: Subject) -> None:
    """A gap in the mask, at the output of a tool, makes no difference.

    The next policy token is the next step: a discount, a trace or a mean that counts the tool's tokens penalises long
    tool output, and a sum that stops there loses the rewards after it.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    moved = batch.closed(fields)
    ours, theirs = case.run(moved), case.run(fields)
    for what, value, expected in (
        *(("the value", *pair) for pair in zip(ours.values, theirs.values, strict=True)),
        *((f"the gradient by {name}", ours.gradients[name], theirs.gradients[name]) for name in theirs.gradients),
    ):
        by_token = expected.shape[:2] == fields["mask"].shape
        pair = (value[moved["mask"]], expected[fields["mask"]]) if by_token else (value, expected)
        same(*pair, f"with the holes closed: {what} of policy tokens" if by_token else f"with the holes closed: {what}")


@check(*ARRAYS, when=without_key, fix="Divide by counts of the mask, never by a width, and mask before you reduce.")
def padding(subject: Subject) -> None:
    """Columns of padding on the right change nothing.

    The width of a batch depends on its longest completion, so the same completion would count differently from step to
    step. The usual cause is a division by the padded width.
    """
    case = ArrayCase.of(subject)
    if not fits_other_shapes(case):
        _compare_other_shape(case, np.arange(batch.ROWS), 3, "with three more columns of padding: the value")


@check(*ARRAYS, when=without_key, fix="Count rows with jnp.any(mask, axis=-1), and use these counts.")
def empty_rows(subject: Subject) -> None:
    """A completion without policy tokens counts nowhere: removing it changes nothing for the others.

    Filters and abstaining rewards empty the masks of rows but leave the rows in the batch. One that still counts shifts
    the baseline of its group, or dilutes a mean.
    """
    case = ArrayCase.of(subject)
    if not fits_other_shapes(case):
        _compare_other_shape(case, live_rows(case), 0, "without the empty row: the value")
    _compare_without_a_group(case)


def _compare_without_a_group(case: ArrayCase) -> None:
    """Complain if a prompt whose completions are all empty counts."""
    fields = case.fields()
    if "group_ids" not in fields:
        return
    kept = np.flatnonzero(fields["group_ids"] != fields["group_ids"][EMPTIED])
    mask = fields["mask"].copy()
    mask[fields["group_ids"] == fields["group_ids"][EMPTIED]] = False
    emptied = batch.with_mask(fields, mask)
    fewer, all_there = case.eager(batch.take_rows(emptied, kept)), case.run(emptied)
    for ours, theirs in zip(fewer.values, all_there.values, strict=True):
        by_row = theirs.ndim and theirs.shape[0] == batch.ROWS
        where = mask[kept] if ours.shape[:2] == mask[kept].shape else mask[kept].any(axis=1) if by_row else True
        same(ours, theirs[kept] if by_row else theirs, "without a group of empty rows: the value", where=where)


def fits_other_shapes(case: ArrayCase) -> bool:
    """Tell whether results are the same with fewer rows *and* more columns; if so, neither is tried separately."""

    def fits() -> bool:
        try:
            _compare_other_shape(case, live_rows(case), 3, "")
        except Failed:
            return False
        return True

    return case.subject.once("fits other shapes", fits)


def live_rows(case: ArrayCase) -> np.ndarray:
    """Return the rows that have policy tokens."""
    return np.flatnonzero(case.fields()["mask"].any(axis=1))


def _compare_other_shape(case: ArrayCase, rows: np.ndarray, columns: int, what: str) -> None:
    fields = case.fields()
    mask = fields["mask"][rows]
    other = case.eager(batch.take_rows(batch.widened(fields, columns), rows))
    for ours, theirs in zip(other.values, case.run(fields).values, strict=True):
        cut = ours[:, : batch.TOKENS] if ours.ndim > 1 and ours.shape[1] == batch.TOKENS + columns else ours
        kept = theirs[rows] if theirs.ndim and theirs.shape[0] == batch.ROWS else theirs
        same(cut, kept, what, where=mask if kept.shape[:2] == mask.shape else True)


@check(*ARRAYS, when=on_batch, fix="Guard every division: x / jnp.maximum(count, 1).")
def all_masked(subject: Subject) -> None:
    """A batch without any policy token gives zeros, and zero gradients, not NaN.

    A filter may leave nothing of a micro-batch, which must then contribute nothing.
    """
    case = ArrayCase.of(subject)
    kind, fields = subject.component.kind, case.fields()
    empty = batch.spoilt(batch.with_mask(fields, np.zeros_like(fields["mask"])), np.nan)
    if kind != "kl":
        empty |= {"weights": np.ones_like(fields["weights"])}
    result = case.run(empty)
    for value in result.values if kind in ZERO_OUTSIDE else ():
        if (value != 0).any():
            raise Failed(f"the value is {value[value != 0].flat[0]:.6g} somewhere")
    for name, metric in result.metrics.items():
        finite(metric, f"the metric '{name}'", where=read_where(metric, empty["mask"]))
    for name, gradient in result.gradients.items():
        if (gradient != 0).any() and kind in LEARNT and kind != "kl":
            raise Failed(f"the gradient by {name} is {gradient[gradient != 0].flat[0]:.6g} somewhere")


@check(*ARRAYS, when=without_key, fix="Never rely on a row's position; group by group_ids with segment sums.")
def row_order(subject: Subject) -> None:
    """Completions in another order give the same results in that order.

    Batches are shuffled between epochs. The usual cause is reshape(-1, group_size), which treats neighbours as a group.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    tied = batch.with_scores(fields, np.arange(batch.ROWS) > batch.ROWS // 2)
    given = [(fields, ORDER, "")] + [(tied, ORDER[::-1], " and equal scores")] * ("scores" in fields)
    for each, order, what in given:  # among equal scores none comes first
        shuffled = case.run(batch.take_rows(each, order))
        for ours, theirs in zip(shuffled.values, case.run(each).values, strict=True):
            moved = theirs[order] if theirs.ndim and theirs.shape[0] == batch.ROWS else theirs
            seen = fields["mask"][order] if moved.shape[:2] == fields["mask"].shape else True
            same(ours, moved, f"with rows in another order{what}: the value", where=seen)


@check(
    *ARRAYS, when=on_batch, reads=["group_ids"], fix="Number the groups first: jnp.unique(ids, return_inverse=True)."
)
def group_labels(subject: Subject) -> None:
    """The labels of groups have no meaning: they may be negative, huge, or far apart.

    Labels that are used as indices read values of other groups: JAX silently clamps indices that are out of bounds.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    labels = {5: 2**31 - 1, -3: 0, 40: -(2**31)}
    other = np.array([labels[label] for label in fields["group_ids"].tolist()], np.int32)
    expected = case.run(fields)
    same_results(case.run(fields | {"group_ids": other}), expected, "under other labels", mask=fields["mask"])

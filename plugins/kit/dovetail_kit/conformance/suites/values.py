"""Claims about every component that maps fields to arrays: the fields it reads, and the values it returns."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.errors import listing, nearest
from dovetail.kinds.fields import HIDDEN, LOGITS
from dovetail.registry import current
from dovetail.registry.compatibility import ENGINE
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase, ReturnsNothing, on_batch
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import finite, read_where, same, same_slopes
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.fields import provided, quantity_in

ARRAYS = tuple(kind.name for kind in current().kinds.values() if kind.reads == "fields")
BY_ROW = ("group_filter",)
ANY_SHAPE = (
    "field",
    *(kind.name for kind in current().kinds.values() if kind.origin.distribution != ENGINE and not kind.term),
)
"""Kinds whose values may have any shape: those of other plugins among them, as only these know what they are for."""
BY_TOKEN = tuple(kind for kind in ARRAYS if kind not in (*BY_ROW, *ANY_SHAPE))
"""Kinds that return a value for each token."""
ZERO_OUTSIDE = tuple(kind for kind in BY_TOKEN if kind != "kl")
CAST = ("advantage",)
BOOLEAN = ("completion_filter", "group_filter", "loss_mask")


@check(*ARRAYS, doctor="error", fix="Correct the spelling, or register a component of kind 'field' that provides it.")
def fields_are_known(subject: Subject) -> None:
    """It reads no misspelt field: an unknown name may be a column only if it does not resemble a known field.

    Positional parameters are fields, or columns of the task that hold numbers; hyperparameters go after a `*`.
    """
    known = provided(subject.component, current())
    for name in subject.component.reads:
        beside = subject.component.kind == "field" and name.endswith(f"_{LOGITS}")  # of a role that a config opens
        if name not in known and nearest(name, known) and not (beside or quantity_in(name, current())):
            raise Failed(
                f"it reads the field '{name}', which nobody provides.{nearest(name, known)} Known:"
                f" {listing(known, 40)}; hyperparameters go behind '*'"
            )


@check(*ARRAYS, when=on_batch, fix="Return one float32 number for each token, and sum nothing up.")
def shapes(subject: Subject) -> None:
    """Values are float32, one for each token; metrics are scalars, or one for each completion or each token.

    Only the aggregation adds tokens up: its weights are computed on the whole mini-batch before it is split. A loss
    that sums or averages by itself is normalised twice, and wrongly under gradient accumulation.
    """
    try:
        values, metrics = ArrayCase.of(subject).announced()
    except ReturnsNothing:
        raise Failed("it returns None; a function without `return` does") from None
    rows, tokens = batch.ROWS, batch.TOKENS
    wanted = (rows,) if subject.component.kind in BY_ROW else (rows, tokens)
    for number, value in enumerate(values if subject.component.kind not in ANY_SHAPE else ()):
        if value.shape != wanted:
            raise Failed(f"value {number} has shape {list(value.shape)}, not {list(wanted)}")
        is_bool = subject.component.kind in BOOLEAN or (subject.component.kind == "correction" and number == 1)
        if value.dtype != np.float32 and not (is_bool and value.dtype == bool) and not _is_cast(subject, value.dtype):
            raise Failed(f"value {number} has type {value.dtype}, not float32")
    for name, metric in metrics.items():
        if metric.shape not in ((), (rows,), (rows, tokens)):
            raise Failed(f"the metric '{name}' has shape {list(metric.shape)}")


def _is_cast(subject: Subject, dtype: Any) -> bool:
    """Tell whether the engine makes float32 of such numbers: of advantages that are whole numbers, say."""
    return subject.component.kind in CAST and bool(jnp.issubdtype(dtype, jnp.number))


@check(*ARRAYS, when=on_batch, fix="Look for a division by a count that may be zero, or the logarithm of zero.")
def finite_results(subject: Subject) -> None:
    """Ordinary inputs, with a completion without policy tokens among them, which may be an episode without a turn, give
    finite values and metrics.

    A single NaN in a value reaches all weights in the next update. Of a metric, what has no policy token is not read.
    """
    case = ArrayCase.of(subject)
    mask, everywhere = case.fields()["mask"], subject.component.kind in ZERO_OUTSIDE
    for result in (case.first(), case.run(case.fields()), case.run(batch.without_turns(case.fields()))):
        for value in result.values:
            finite(value, "the value", where=True if everywhere else read_where(value, mask))
        for name, metric in result.metrics.items():
            finite(metric, f"the metric '{name}'", where=read_where(metric, mask))


@check(
    "field",
    when=on_batch,
    fix="Let no derivative be infinite where it is not needed: jnp.sqrt(jnp.where(x > 0, x, 1.0)) in the selection.",
)
def finite_gradients(subject: Subject) -> None:
    """The gradient by what the model computes is finite, also of a completion with a single token, or with none.

    A loss may read it. The deviation of a single number is zero, where the square root has an infinite derivative.
    """
    total, inputs = _sum_by_what_learns(subject)
    for name, gradient in total(inputs)[1].items():
        finite(np.asarray(gradient), f"the gradient by {name}")


@check(
    "field",
    when=on_batch,
    unless="surrogate",
    fix="Find the jax.lax.stop_gradient that is in the way; declare surrogate=True if it is intended.",
)
def learns_through_all_of_it(subject: Subject) -> None:
    """The gradient of its sum agrees with central differences in one of four random directions.

    With a part of it detached, a loss that reads it looks right, and trains something else.
    """
    total, inputs = _sum_by_what_learns(subject)
    same_slopes(lambda moved: float(total(moved)[0]), total(inputs)[1], inputs)


def _sum_by_what_learns(subject: Subject) -> tuple[Any, batch.Fields]:
    """Return the sum of a field as a compiled function with its gradients, and the inputs that depend on the model.

    Raises:
        Inapplicable: if none does, or there is no gradient.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    inputs = {name: fields[name] for name in case.component.reads if name in (*case.variables, LOGITS, HIDDEN)}
    if not inputs:
        raise Inapplicable("it depends on nothing that is trained")
    others = {name: value for name, value in fields.items() if name not in inputs}

    def total(learnt: batch.Fields) -> Any:
        values, _ = case.call(others | learnt, subject.floats)
        return sum(jnp.sum(value) for value in values if jnp.issubdtype(value.dtype, jnp.floating))

    compiled = subject.once("sum", lambda: jax.jit(jax.value_and_grad(total)))
    try:
        compiled(inputs)
    except (TypeError, jax.errors.JAXTypeError) as error:
        raise Inapplicable("it has no gradient") from error
    return compiled, inputs


@check(*ZERO_OUTSIDE, fix="End with jnp.where(mask, value, 0.0).")
def zero_outside_the_mask(subject: Subject) -> None:
    """Values are exactly zero outside the mask.

    Otherwise padding and the tokens of tools would count in sums and metrics.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    mask = fields["mask"]
    for given in (fields, batch.spoilt(fields, 7.0)):  # fields that are zero there hide what is not masked
        for value in case.run(given).values:
            if value.shape == mask.shape and value[~mask].any():
                row, token = np.argwhere((value != 0) & ~mask)[0]
                raise Failed(f"value[{row}, {token}] is {value[row, token]:.6g}, where the mask is false")


@check(*ARRAYS, when=on_batch, fix="Cast inputs first: x.astype(jnp.float32), unless x is float64.")
def half_precision(subject: Subject) -> None:
    """bfloat16 in, float32 out, with the arithmetic in float32.

    Sums and exponentials in bfloat16 keep three digits, so the accuracy of the loss would depend on the model's dtype.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    names = [n for n, v in fields.items() if batch.is_float(v) and n not in ("weights", "logits", "ref_logits")]
    half = fields | {name: np.asarray(fields[name]).astype(jnp.bfloat16) for name in names}
    result = case.eager(half)
    for what, value in [("the value", v) for v in result.values] + [(f"'{k}'", v) for k, v in result.metrics.items()]:
        if value.dtype.name in ("bfloat16", "float16") and not _is_cast(subject, value.dtype):
            raise Failed(f"{what} is {value.dtype}")
    rounded = case.run(fields | {name: half[name].astype(np.float32) for name in names})
    try:
        for ours, theirs in zip(result.values, rounded.values, strict=True):
            seen = read_where(ours, fields["mask"])
            same(ours, theirs, "with bfloat16 inputs: the value", where=seen, within=1e-4)
    except Failed:
        again, asked = case.eager(fields), case.first()  # with other inputs in between it may be another mistake
        if any(a.tobytes() != b.tobytes() for a, b in zip(again.values, asked.values, strict=True)):
            raise Inapplicable("it does not give the same again: see the check 'determinism'") from None
        raise

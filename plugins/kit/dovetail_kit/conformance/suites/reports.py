"""Claims about metrics and about NaN: neither may hide a problem."""

from __future__ import annotations

import re
from typing import Final

import jax.numpy as jnp
import numpy as np

from dovetail.step.parts import sums
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase, draws_nothing, without_key
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import read_where
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.invariance import live_rows
from dovetail_kit.conformance.suites.losses import LOSSES
from dovetail_kit.conformance.suites.values import ARRAYS

CLIPPED: Final = re.compile(r"(^|_)(clip|clipped|truncated|truncation|capped|outside)(_|$)")


@check(
    *ARRAYS,
    when=without_key,
    fix="Report an array of one number for each token, which the engine reduces over the mask; or divide by its sum.",
)
def metrics_of_tokens(subject: Subject) -> None:
    """Padding and empty completions change no metric.

    A fraction that includes padding falls as one completion of the batch gets longer.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    expected = case.run(fields)
    if not expected.metrics:
        raise Inapplicable("it reports no metrics")
    rows = live_rows(case)
    wide = batch.take_rows(batch.widened(fields, 3), rows)
    found = _reduced(case.eager(wide).metrics, wide["mask"])
    for name, value in _reduced(expected.metrics, fields["mask"]).items():
        if not np.isclose(found[name], value, rtol=1e-4, atol=1e-5):
            raise Failed(
                f"with three columns of padding, and without the empty row, '{name}' is {found[name]:.6g}"
                f" instead of {value:.6g}"
            )


def _reduced(metrics: dict[str, np.ndarray], mask: np.ndarray) -> dict[str, float]:
    """Return metrics as they are logged."""
    found = sums("", {name: jnp.asarray(value) for name, value in metrics.items()}, jnp.asarray(mask))
    return {name: float(total / max(count, 1.0)) for name, (total, count) in found.items()}  # pyright: ignore


@check(
    *LOSSES,
    when=draws_nothing,
    fix="Leave what is not finite as it is: no nan_to_num, and no jnp.where(jnp.isfinite(x), x, 0).",
)
def nan_of_the_model_is_seen(subject: Subject) -> None:
    """If the model gives NaN at the first policy token of a completion, so does the loss, for some completion: it may
    leave out others.

    A run stops at a loss of NaN, and keeps the batch. If the NaN became zero, it would continue with a broken model.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for row in np.flatnonzero(fields["mask"].any(axis=1)):
        for name in case.variables:
            broken = fields[name].copy()
            broken[row, np.argmax(fields["mask"][row])] = np.nan
            if np.isnan(case.run(fields | {name: broken}).value[row]).any():
                return
    if case.variables:
        raise Failed(f"{' and '.join(case.variables)} are NaN there, one completion at a time, but the loss is finite")


@check(
    "correction",
    "policy_loss",
    when=lambda component: without_key(component) and not component.declares.get("scales"),
    fix="Report 1 where the ratio is beyond its bound: ratio > upper, not ratio < upper.",
)
def nothing_is_clipped_at_rest(subject: Subject) -> None:
    """Where all log-probabilities agree, so that every ratio is 1, a metric called `clip_fraction`, `truncated` or the
    like is not 1 at every token.

    A curve of what is not clipped under this name falls as more is clipped, and a run that learns nothing looks tame.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    policies = [name for name in fields if batch.LOGPS.search(name)]
    result = case.run(fields | {name: fields[policies[0]].copy() for name in policies})
    for name, metric in result.metrics.items():
        if CLIPPED.search(name):
            seen = metric[read_where(metric, fields["mask"])] if metric.ndim else metric
            if np.all(seen == 1):
                raise Failed(f"where every ratio is 1, the metric '{name}' is 1 throughout")


@check("kl", fix="Look for jax.lax.stop_gradient around the log-probabilities that are being trained.")
def pulls(subject: Subject) -> None:
    """Its gradient is not zero everywhere: a penalty in the loss without a gradient has no effect.

    The config says that the policy is held near its reference, and it is not.
    """
    case = ArrayCase.of(subject)
    result = case.run(case.fields())
    if result.gradients and not any(gradient.any() for gradient in result.gradients.values()):
        raise Failed(f"its gradient by {', '.join(result.gradients)} is zero everywhere")

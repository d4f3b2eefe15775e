"""Claims about loss masks and filters: what is stale is kept no sooner, and a larger share keeps no fewer."""

from __future__ import annotations

import re
from typing import Final

import jax
import numpy as np

from dovetail.errors import DovetailError
from dovetail.registry import Component
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject, allows
from dovetail_kit.conformance.suites.hyperparameters import numbers_of, others

FILTERS: Final = ("completion_filter", "loss_mask")
STRUCTURE: Final = frozenset({"mask", "lengths", "truncated", "observed", "turns", "turn_mask", "tool_calls", "tokens"})
"""Fields of a completion's form alone."""
UNEVEN: Final = 0.15
"""How far from 1 the mean weight may be: some 20,000 weights are averaged."""
SHARE: Final = re.compile(r"^(fraction|(keep|kept)_(fraction|ratio|share))$")


@check(*FILTERS, reads=["staleness"], fix="Keep what is fresh: staleness <= bound.")
def staleness_does_not_help(subject: Subject) -> None:
    """A token is kept, or weighs more, no sooner for having been sampled by older weights.

    With the comparison inverted, an asynchronous run trains on what is stale, and on nothing else.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    before, stalest = None, 0
    for staleness in (0, 1, 2, 4, 16, 256):
        stale = np.where(fields["mask"], staleness, 0).astype(fields["staleness"].dtype)
        kept = case.run(fields | {"staleness": stale}).value.astype(np.float32)
        if before is not None and (kept > before + 1e-6).any():
            count = int((kept > before + 1e-6).sum())
            raise Failed(
                f"where all tokens are {staleness} updates old, {count} are kept, or weigh more, that are not where"
                f" they are {stalest} old"
            )
        before, stalest = kept, staleness


def _shares(component: Component) -> list[str]:
    return [name for name in component.params if SHARE.search(name)]


@check(*FILTERS, when=lambda component: bool(_shares(component)), fix="Keep what is above the (1 - fraction)-quantile.")
def a_larger_share_keeps_no_fewer(subject: Subject) -> None:
    """A larger number called `fraction` keeps no fewer tokens.

    With the quantile turned round, a fifth of the tokens becomes four fifths.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name in _shares(subject.component):
        values = [value for value in (0.05, 0.2, 0.8, 0.95) if allows(subject.component, name, value)]
        counts = [
            int((case.run(fields, subject.floats | {name: np.float32(value)}).value != 0).sum())
            for value in (values if name in subject.floats else ())
        ]
        if (np.diff(counts) < 0).any():
            told = ", ".join(f"{count} at {value:g}" for value, count in zip(values, counts, strict=True))
            raise Failed(f"of {fields['mask'].sum()} tokens it keeps by '{name}': {told}")


def _least(component: Component) -> list[str]:
    """Return the whole numbers whose least value is 1."""
    return [
        name
        for name, value in component.params.items()
        if isinstance(value, int)
        and not isinstance(value, bool)
        and allows(component, name, 1)
        and not allows(component, name, 0)
    ]


@check("correction", "loss_mask", fix="Bound the weight below by 0, jnp.maximum(weight, 0.0), or turn the advantage.")
def no_weight_is_negative(subject: Subject) -> None:
    """No weight is below zero, whatever the numbers of the batch are.

    A token with a negative weight is trained the wrong way round: what was good is unlearnt.
    """
    case = ArrayCase.of(subject)
    for fields in (case.fields(), *(batch.scaled(case.fields(seed=1), factor) for factor in (3.0, 27.0))):
        weights, mask = case.run(fields).values[0], fields["mask"]
        if weights.dtype != bool and weights.shape == mask.shape and (weights[mask] < 0).any():
            row, token = np.argwhere((weights < 0) & mask)[0]
            raise Failed(f"the weight at [{row}, {token}] is {weights[row, token]:.6g}")


@check(
    "loss_mask",
    when=lambda component: bool(_least(component)),
    fix="Count from one: the first n tokens are those where jnp.cumsum(mask) <= n.",
)
def one_is_enough(subject: Subject) -> None:
    """With a whole number at its least value, 1, some policy token is kept.

    Off by one, a run with that setting trains on nothing, and every other setting keeps one token fewer than it says.
    """
    case = ArrayCase.of(subject)
    for name in _least(subject.component):
        if not case.eager(case.fields(), **{name: 1}).value.any():
            raise Failed(f"with '{name}' = 1 no token is kept")


@check(
    "loss_mask",
    when=lambda component: {*component.reads} <= STRUCTURE,
    fix="Count along a completion: jnp.sum(mask, axis=1, keepdims=True).",
)
def others_have_their_own_length(subject: Subject) -> None:
    """If it reads nothing but where completions begin and end, each is judged by itself, whatever its numbers are.

    Counted along the wrong axis, what is left out depends on how many completions a batch has.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    alone = batch.take_rows(fields, [0, 1])
    changes = [
        {},
        *({name: x} for name, value in numbers_of(subject).items() for x in others(case.component, name, value)),
    ]
    for changed in changes:
        try:
            whole, few = (np.asarray(case.eager(each, **changed).value) for each in (fields, alone))
        except (DovetailError, ValueError):
            continue  # this number does not go with the others
        if not np.allclose(few, whole[:2], equal_nan=True):
            told = "".join(f"with '{name}' = {value:g}, " for name, value in changed.items())
            raise Failed(f"{told}two completions get other weights alone than among {batch.ROWS}")


@check(
    "loss_mask",
    when=lambda component: bool({"key", "row_keys"} & {*component.reads}),
    fix="Divide the weight of a token by the probability with which it is kept.",
)
def weights_are_one_on_average(subject: Subject) -> None:
    """If tokens that are drawn at random have other weights than 0 and 1, these are 1 on average over many draws.

    Otherwise the loss is larger or smaller by a factor that nobody chose, and with it the learning rate.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    mask, draws = fields["mask"], 400
    values = [case.run(_drawn(fields, draw)).value for draw in range(draws)]
    if all(np.isin(value[mask], (0, 1)).all() for value in values):
        raise Inapplicable("its weights are 0 and 1")
    total = float(np.mean([value[mask].mean() for value in values]))
    if abs(total - 1) > UNEVEN:
        raise Failed(f"over {draws} draws the weights are {total:.4g} on average")


def _drawn(fields: batch.Fields, draw: int) -> batch.Fields:
    keys = {"key": jax.random.key(draw), "row_keys": jax.random.split(jax.random.key(draw), batch.ROWS)}
    return fields | {name: key for name, key in keys.items() if name in fields}


@check(
    "completion_filter",
    "loss_mask",
    when=lambda component: {*component.reads} <= STRUCTURE and bool(_wholes(component)),
    fix="Count policy tokens, jnp.cumsum(mask, axis=1), and not columns.",
)
def gaps_count_for_no_number(subject: Subject) -> None:
    """Where whole numbers are small, too, a gap in the mask, at the output of a tool, makes no difference.

    The first tokens of a completion are the first that the policy wrote, wherever they stand.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    closed = batch.closed(fields)
    for name in _wholes(subject.component):
        for value in (1, 2, 3, 4):
            if not allows(subject.component, name, value):
                continue
            ours, theirs = (case.eager(each, **{name: value}).value for each in (closed, fields))
            if ours.shape == fields["mask"].shape and not np.allclose(ours[closed["mask"]], theirs[fields["mask"]]):
                raise Failed(f"with '{name}' = {value} the tokens are treated otherwise with the gaps closed")


def _wholes(component: Component) -> list[str]:
    return [name for name, value in component.params.items() if type(value) is int]


LEFT_OUT: Final = re.compile(r"(^|_)(dropped|excluded|left_out|rejected|removed|filtered)(_|$)")


@check(*FILTERS, "group_filter", fix="Report what is left out: 1 where the mask is true, and the result false.")
def counts_what_it_leaves_out(subject: Subject) -> None:
    """A metric called `dropped`, `rejected` or the like, of zeros and ones, is not the other way round.

    A curve that shows what is kept under this name makes a filter look strict that is lax.
    """
    case = ArrayCase.of(subject)
    mask = case.fields()["mask"]
    for seed in range(3):
        result = case.run(batch.scaled(case.fields(seed), 3.0) if seed else case.fields())
        kept = (result.value != 0) & (mask if result.value.ndim > 1 else mask.any(axis=1))
        for name, metric in result.metrics.items():
            if not LEFT_OUT.search(name) or metric.shape not in (mask.shape, mask.shape[:1]):
                continue
            where = mask if metric.ndim > 1 else mask.any(axis=1)
            own = kept if kept.ndim == metric.ndim else kept.any(axis=1) if metric.ndim == 1 else None
            if own is None or not np.isin(metric[where], (0, 1)).all():
                continue
            if np.array_equal(metric[where] > 0, own[where]) and own[where].any():
                raise Failed(f"the metric '{name}' is 1 for what is kept, and 0 for what is left out")

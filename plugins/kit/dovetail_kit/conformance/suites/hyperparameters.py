"""Claims about hyperparameters: each of them does something."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.errors import DovetailError, listing
from dovetail.ranges import bounds, plain, union_of
from dovetail.registry import Component
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import LEARNT, ArrayCase, on_batch
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import Result, finite, read_where
from dovetail_kit.conformance.subject import Subject, allows
from dovetail_kit.conformance.suites.numbers import CONTROLLERS, SCHEDULES, TOTAL, schedule_of
from dovetail_kit.conformance.suites.values import ARRAYS

FIX = (
    "Use the hyperparameter, or take it out. If it matters only beside other values of the others, declare"
    " settings={'name': value}; for a reward or an answer add a pair in which it matters to examples. Declare"
    " idle=('name',) if it matters only in cases that the checks do not have, or changes how fast the result is there"
    " and not the result, as a number of threads does."
)
OBSERVED: Final = (0.5, 0.0, 9.0, 0.01, 0.2, 0.0, 40.0)
SUSTAINED: Final = 6
"""What a controller sees, once and then as often as this each: some act only on what lasts."""
HIGH, LOW = 30, 90
BOUNDS: Final = (9.0,) * HIGH + (0.0,) * LOW
"""What it sees in the end, which is long enough to arrive at most bounds of its coefficient: at the lowest and at the
highest, whether it begins by falling, as for entropy, or by rising."""
ROUNDING = 1e-5
FAR = 3.0
"""What fields are multiplied by, so that bounds are met."""
UPPER: Final = re.compile(r"(^|_)(max|maximum|upper|high|cap|ceiling)(_|$)")
LOWER: Final = re.compile(r"(^|_)(min|minimum|lower|low|floor)(_|$)")
CEILING: Final = re.compile(r"^(ceiling|cap|dual_clip|max_ratio)$")
PAIRS: Final = (("lower", "upper"), ("low", "high"), ("min", "max"), ("floor", "ceiling"))
OF_TIME: Final = re.compile(r"time_?(limit|out)|deadline|retries|workers|threads|processes|concurren")
"""In names, that a number decides how long something may take, or how much of it goes on at a time."""
DISTANCE: Final = re.compile(r"eps|clip|delta|range|width")
"""In names, that a bound is how far from something, so that a lower one may be larger than the upper one."""
RIGHT_OR_WRONG: Final = np.random.default_rng(0).integers(0, 2, batch.ROWS)
"""Scores of which most are tied, as those of an answer that is right or wrong."""
LARGE, SMALL = 3, 0.3
UNTOLD: Final = ("mask", "group_ids", "role_ids")
"""What is read for its places and its labels, of which a range says nothing."""


@check(*ARRAYS, when=on_batch, name="every_number_counts", fix=FIX)
def every_number_counts(subject: Subject) -> None:
    """Another value of any hyperparameter that is a number changes the gradient on some of the batches; for what trains
    no model, and for a divergence, a value or a metric.

    A discount that is never applied, or an upper bound that is used in place of the lower one, would go unnoticed: a
    sweep over it would compare identical runs.
    """
    case = ArrayCase.of(subject)
    unseen: dict[str, Iterable[float]] = {}
    whole = {name: value for name, value in numbers_of(subject).items() if name not in subject.floats}
    for name, value in whole.items():
        tried = others(subject.component, name, value)
        if tried and not any(_counts_as(case, name, other) for other in tried):
            unseen[name] = tried
    for name in own_numbers(subject):
        tried = _sensible(subject, name, tries(subject, name))
        seen = any(_differs(case, fields, name, other) for fields in _batches(case) for other in tried)
        if tried and not seen and not any(_counts_under(case, option, name) for option in _options(subject)):
            unseen[name] = tried
    for name, values in _optional(subject).items():
        if not any(_counts_as(case, name, other) for other in values):
            unseen[name] = values
    refuse_unseen(subject, unseen, f"on batches of {_ranges(case)}" if unseen else "")


def _number(subject: Subject, name: str, value: Any) -> Any:
    return np.float32(value) if name in subject.floats else value


def refuse_unseen(subject: Subject, unseen: Mapping[str, Iterable[float]], data: str) -> None:
    """Refuse hyperparameters with values that made no difference, all of them at once, and say on which data.

    Raises:
        Failed: if there are any.
    """
    found = []
    for name, tried in unseen.items():
        value = subject.floats.get(name, subject.params[name])
        now = "None" if value is None else f"{value:g}"
        found.append(f"'{name}' = {now} can be changed to {listing(f'{x:g}' for x in sorted(tried))} unseen")
    if found:
        raise Failed(f"{'; '.join(found)}, {data}")


@check(*SCHEDULES, *CONTROLLERS, name="every_number_counts", fix=FIX)
def every_number_of_a_curve_counts(subject: Subject) -> None:
    """Another value of any float hyperparameter changes the curve.

    A sweep over a number without effect would compare identical runs.
    """
    curve = _curve if subject.component.kind in SCHEDULES else _coefficients
    expected = curve(subject, {})
    offered = {name: tries(subject, name) for name in own_numbers(subject)} | _optional(subject)
    unseen = {
        name: values
        for name, values in offered.items()
        if values and all(np.array_equal(curve(subject, {name: _number(subject, name, x)}), expected) for x in values)
    }
    of_schedule = f"at the steps 0 to {TOTAL} of {TOTAL}"
    of_controller = (
        f"where {max(BOUNDS):g} is observed {HIGH} times, then 0 {LOW} times, and {max(OBSERVED):g} once before them"
    )
    refuse_unseen(subject, unseen, of_schedule if curve is _curve else of_controller)


@check(
    *ARRAYS, *SCHEDULES, when=on_batch, fix="Guard what is divided by, or let the range leave that number out: Gt(0)."
)
def finite_within_its_range(subject: Subject) -> None:
    """Each number that its annotation bounds may be 0, or 1, if the bounds hold them: the result is finite.

    A config may set what the range allows. An epsilon or a warm-up of zero is often 0/0.
    """
    for name in own_numbers(subject):
        ends = bounds(subject.component.hints[name])
        for value in (0.0, 1.0) if ends else ():
            if all(end.holds(value) for end in ends):
                what = f"with '{name}' = {value:g}, which its range allows: the value"
                finite(_values_with(subject, {name: np.float32(value)}), what)


def _values_with(subject: Subject, changed: dict[str, Any]) -> np.ndarray:
    """Return a curve, or what is read of an array, also where all scores are equal."""
    if subject.component.kind in SCHEDULES:
        return _curve(subject, changed)
    case = ArrayCase.of(subject)
    fields = case.fields()
    given = (fields, batch.with_scores(fields, np.ones(batch.ROWS)))
    values = [case.run(each, subject.floats | changed).value for each in given]
    return np.stack([value[read_where(value, fields["mask"])] for value in values])


def _options(subject: Subject) -> Iterator[dict[str, Any]]:
    """Yield the other choices that its hyperparameters offer, one at a time: some numbers matter under them alone."""
    for name, value in subject.params.items():
        hint = plain(subject.component.hints[name])
        words = get_args(hint) if get_origin(hint) is Literal else (True, False) if hint is bool else ()
        yield from ({name: word} for word in words if word != value and name not in subject.component.common)


def _counts_as(case: ArrayCase, name: str, other: Any) -> bool:
    """Tell whether a whole number, which is not traced, does something as another one; not compiled."""
    try:
        return any(_unequal(case.eager(fields), case.eager(fields, **{name: other})) for fields in _batches(case))
    except (DovetailError, Inapplicable, ValueError):
        return False  # this value does not go with the others


def _counts_under(case: ArrayCase, option: dict[str, Any], name: str) -> bool:
    """Tell whether a hyperparameter does something under an option; not compiled, as this is rarely asked."""
    for fields in _batches(case):
        before = case.eager(fields, **option)
        tried = tries(case.subject, name)
        if any(_unequal(before, case.eager(fields, **option, **{name: np.float32(x)})) for x in tried):
            return True
    return False


def own_numbers(subject: Subject) -> dict[str, Any]:
    """Return the float hyperparameters that are to do something, with their values."""
    left_out = (*subject.component.common, *subject.declared.get("idle", ()))
    return {name: value for name, value in subject.floats.items() if name not in left_out}


def numbers_of(subject: Subject) -> dict[str, Any]:
    """Return the hyperparameters that are whole or real numbers and are to do something, with their values."""
    component = subject.component
    left_out = (*component.common, *subject.declared.get("idle", ()))
    return {
        name: value
        for name, value in subject.params.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and name not in left_out
        and not OF_TIME.search(name)
    }


def others(component: Component, name: str, value: Any) -> tuple[Any, ...]:
    """Return other values of a number that its annotation allows."""
    hint = component.hints[name]
    limits = bounds(hint)

    def allowed(numbers: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(x for x in numbers if x != value and all(limit.holds(x) for limit in limits))

    if isinstance(value, int) and float not in {plain(option) for option in union_of(plain(hint))}:
        return allowed(dict.fromkeys((value + 1, 2 * value + 3, value // 2, 1, 2, 30, 0)))
    # a range may be so narrow that none of these is in it, as for a discount above 0.9
    return allowed((0.5 * value, 2 * value + 0.1, 0.0, 0.9, 30.0)) or allowed((value + x.limit) / 2 for x in limits)


def tries(subject: Subject, name: str) -> tuple[float, ...]:
    """Return other values of a float: nearer, farther, none, and beyond most bounds, of those that its range allows."""
    return others(subject.component, name, float(subject.floats[name]))


def off_by_default(component: Component, name: str) -> tuple[Any, ...]:
    """Return numbers that an optional one, None by default, may well be: an upper bound above 1, a lower one below, and
    others both.
    """
    options = {plain(option) for option in union_of(plain(component.hints[name]))}
    if component.params[name] is not None or not {int, float} & options:
        return ()
    wanted = (LARGE,) if UPPER.search(name) else (SMALL,) if LOWER.search(name) else (LARGE, SMALL)
    found = [float(value) for value in wanted] if float in options else [LARGE]
    allowed = tuple(value for value in found if allows(component, name, value))
    return (
        allowed or tuple(value for value in (0.5, 0.9, 2.0) if float in options and allows(component, name, value))[:1]
    )


def _optional(subject: Subject) -> dict[str, tuple[Any, ...]]:
    """Return the numbers that are None by default and are to do something, each with other values."""
    component = subject.component
    left_out = (*component.common, *subject.declared.get("idle", ()), *subject.declared.get("settings", ()))
    found = {name: off_by_default(component, name) for name in component.params if name not in left_out}
    return {name: values for name, values in found.items() if values}


def _sensible(subject: Subject, name: str, values: tuple[float, ...]) -> tuple[float, ...]:
    """Return the values of a lower bound that are below the upper one of the same name, if there is one; those of a
    ceiling that are not far below it, where it would be another bound.
    """
    if CEILING.search(name):
        return tuple(value for value in values if value >= 0.5 * float(subject.params[name]))
    if DISTANCE.search(name):
        return values
    partners = [name.replace(low, high) for low, high in PAIRS if low in name and name.replace(low, high) != name]
    upper = next((float(subject.floats[each]) for each in partners if each in subject.floats), None)
    return values if upper is None else tuple(value for value in values if value < upper)


def _ranges(case: ArrayCase) -> str:
    """Say how long the completions of the batches are, and from where to where the numbers are that are read."""
    seen = dict[str, list[np.ndarray]]()
    for fields in _batches(case):
        for name in set(case.component.reads) - {*UNTOLD}:
            if batch.is_array(fields[name]) and (batch.is_float(fields[name]) or fields[name].dtype.kind in "biu"):
                shaped = fields[name].shape == fields["mask"].shape
                seen.setdefault(name, []).append(fields[name][fields["mask"]] if shaped else fields[name].ravel())
    told = [_range_of(name, np.concatenate(seen[name])) for name in case.component.reads if name in seen]
    return ", ".join([f"{batch.ROWS} completions of up to {batch.TOKENS} tokens", *told])


def _range_of(name: str, values: np.ndarray) -> str:
    if values.dtype.kind == "b":
        return f"{name} true {_where(float(values.mean()))}"
    return f"{name} from {float(values.min()):.3g} to {float(values.max()):.3g}"


def _where(share: float) -> str:
    """Say in how many places something holds.

    >>> [_where(share) for share in (0.0, 0.004, 0.25, 1.0)]
    ['nowhere', 'in less than 1 % of the places', 'in 25 % of the places', 'everywhere']
    """
    if share in (0.0, 1.0):
        return "everywhere" if share else "nowhere"
    percent = "less than 1" if share < 0.01 else "more than 99" if share > 0.99 else f"{100 * share:.0f}"
    return f"in {percent} % of the places"


def _batches(case: ArrayCase) -> Iterator[batch.Fields]:
    yield case.fields()
    yield batch.eventful(case.fields(1))
    for factor in (FAR, FAR**3, 0.01):
        yield batch.scaled(case.fields(1), factor)
    yield batch.with_scores(case.fields(1), RIGHT_OR_WRONG)


def _differs(case: ArrayCase, fields: batch.Fields, name: str, value: float) -> bool:
    floats = case.subject.floats
    is_loss = case.component.kind in LEARNT and case.component.kind != "kl"
    if _unequal(case.run(fields), case.run(fields, floats | {name: np.float32(value)}), is_loss=is_loss):
        return True
    return "state" in fields and _remembers_otherwise(case, fields, name, value)


def _unequal(before: Result, after: Result, *, is_loss: bool = False) -> bool:
    pairs = [(before.gradients[key], after.gradients[key]) for key in before.gradients]
    if not is_loss:  # of a loss only the gradient trains, and a bound that only a metric counts with leaves it without
        pairs += zip(before.values, after.values, strict=True)
    if not before.gradients:
        pairs += [(before.metrics[key], after.metrics[key]) for key in before.metrics]
    return not all(_alike(ours, theirs) for ours, theirs in pairs)


def _alike(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Tell whether two arrays are the same up to what rounding does where a factor cancels out, and but for NaN."""
    if ours.dtype.kind != "f":
        return np.array_equal(ours, theirs)
    return bool((np.isclose(ours, theirs, rtol=ROUNDING, atol=0.0) | ~np.isfinite(theirs)).all())


def _remembers_otherwise(case: ArrayCase, fields: batch.Fields, name: str, value: float) -> bool:
    """Tell whether what an estimator remembers depends on a hyperparameter."""
    arguments = {read: jax.tree.map(jnp.asarray, fields[read]) for read in case.component.reads}
    states = [
        case.subject.bind(**(case.subject.floats | changed)).update(**arguments)
        for changed in ({}, {name: np.float32(value)})
    ]
    leaves = [jax.tree.leaves(state) for state in states]
    begun = [
        jax.tree.leaves(case.subject.bind(**(case.subject.floats | changed)).init(batch.ROLES))
        for changed in ({}, {name: np.float32(value)})
    ]
    leaves = [[*ours, *first] for ours, first in zip(leaves, begun, strict=True)]
    return not all(np.array_equal(ours, theirs) for ours, theirs in zip(*leaves, strict=True))


def _curve(subject: Subject, changed: dict[str, Any]) -> np.ndarray:
    schedule = schedule_of(subject, subject.floats | changed)
    return np.array([schedule(jnp.int32(step), jnp.int32(TOTAL)) for step in range(0, TOTAL + 1, 3)])


def _coefficients(subject: Subject, changed: dict[str, Any]) -> np.ndarray:
    controller = subject.bind(**(subject.floats | changed))
    state, found = controller.init(0.1), []
    for value in (*OBSERVED, *np.repeat(OBSERVED, SUSTAINED), *BOUNDS):
        state = controller.update(state, jnp.float32(value), jnp.int32(64))
        found.append(controller.coef(state))
    return np.array(found)

"""Claims about numbers whose names say what they do: bonuses and floors of entropy, first and last values."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject, allows, said_of
from dovetail_kit.conformance.suites.directions import EPSILON
from dovetail_kit.conformance.suites.hyperparameters import off_by_default, tries

BONUS: Final = re.compile(r"^((entropy_)?bonus(_(coef|coefficient|weight|scale))?|entropy_(coef|coefficient|weight))$")
FLOOR: Final = re.compile(r"^(floor|entropy_floor|min_entropy)$")
BONUS_IN_WORDS: Final = re.compile(r"\bbonus\b", re.IGNORECASE)
DIVERGENCE: Final = re.compile(r"(^|_)kl$")
SUCCESS: Final = "success_at"
QUANTILE: Final = re.compile(r"^quantile$")
ZERO: Final = re.compile(r"\b(?:0|zero) (?:changes nothing|for none|switches (?:it|this) off|leaves)")
LAST: Final = re.compile(r"^(?P<first>\w+)_(final|end|last)$")


def _bonuses(component: Component) -> list[str]:
    return [name for name in component.params if BONUS.search(name)]


@check(
    "policy_loss",
    "loss_term",
    reads=["entropy"],
    when=lambda component: bool(_bonuses(component)),
    fix="Subtract the bonus from the loss, which is minimised.",
)
def a_bonus_raises_entropy(subject: Subject) -> None:
    """The larger a number called `bonus` or `entropy_coef` is, the more descending raises the entropy.

    With its sign turned it is a penalty: the policy collapses the faster the more exploration is asked for.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name in _bonuses(subject.component):
        if name in subject.floats and all(allows(subject.component, name, value) for value in (0.01, 0.5)):
            small, large = (
                float(case.run(fields, subject.floats | {name: np.float32(value)}).gradients["entropy"].sum())
                for value in (0.01, 0.5)
            )
            if large > small + EPSILON:
                raise Failed(
                    f"the gradients by entropy add up to {small:.6g} with '{name}' = 0.01, and to {large:.6g} with 0.5"
                )


@check(
    "loss_term",
    reads=["entropy"],
    when=lambda component: not _bonuses(component) and bool(BONUS_IN_WORDS.search(component.summary)),
    fix="Return what is to be minimised: minus the entropy.",
)
def what_is_called_a_bonus_raises_entropy(subject: Subject) -> None:
    """A term whose docstring begins by calling it a bonus of entropy raises the entropy.

    Returned as it is, and minimised, it is a penalty: the policy collapses the faster the larger its coefficient.
    """
    case = ArrayCase.of(subject)
    pull = float(case.run(case.fields()).gradients["entropy"].sum())
    if pull > EPSILON:
        raise Failed(f"the gradients by entropy add up to {pull:.6g}: descending lowers it")


@check(
    "policy_loss",
    reads=["logps", "old_logps"],
    fix="Take old_logps - logps, or exp(x) - 1 - x with x = logps - old_logps: the samples are the old policy's.",
)
def a_divergence_is_positive(subject: Subject) -> None:
    """A metric called `..._kl` is not negative where all tokens that were sampled have become less likely, unless it
    compares with the reference or the sampler.

    With the sign turned, the curve falls as the policy moves away, and a limit on it is never reached.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    less_likely = fields | {"logps": (fields["old_logps"] - np.float32(0.5)).astype(np.float32)}
    result = case.run(less_likely)
    others = [name for name in ("ref_logps", "rollout_logps") if name in fields]
    apart = case.run(less_likely | {name: (fields[name] - np.float32(0.5)).astype(np.float32) for name in others})
    for name, metric in result.metrics.items():
        # one estimate of a divergence from another policy is log π - log π_ref, which falls with log π
        if DIVERGENCE.search(name) and np.array_equal(metric, apart.metrics[name], equal_nan=True):
            seen = float(np.mean(metric[fields["mask"]] if metric.shape == fields["mask"].shape else metric))
            if seen < -EPSILON:
                raise Failed(
                    f"where log-probabilities have fallen by 0.5, the metric '{name}' is {seen:.6g} on average"
                )


def _ends(component: Component) -> list[tuple[str, str]]:
    found = [(match["first"], name) for name in component.params if (match := LAST.search(name))]
    names = component.params
    return [
        (next(each for each in (first, f"{first}_start") if each in names), last)
        for first, last in found
        if first in names or f"{first}_start" in names
    ]


@check(
    "policy_loss",
    "value_loss",
    "loss_term",
    "kl",
    "advantage",
    reads=["progress"],
    when=lambda component: bool(_ends(component)),
    fix="Go from the first to the last: first + (last - first) · progress.",
)
def begins_and_ends(subject: Subject) -> None:
    """Of two numbers called `x` and `x_final`, the first alone counts when the run begins, and the second when it ends.

    Turned round, a bound that is to tighten is loosened, and the config says the contrary.
    """
    case = ArrayCase.of(subject)
    for first, last in _ends(subject.component):
        if not {first, last} <= {*subject.floats}:
            continue
        for progress, name in ((1.0, first), (0.0, last)):
            fields = case.fields() | {"progress": np.float32(progress)}
            value = subject.floats[name]
            moved = next(iter(tries(subject, name)), value)
            before, after = (case.run(fields, subject.floats | {name: np.float32(v)}) for v in (value, moved))
            pairs = [(before.value, after.value), *((g, after.gradients[n]) for n, g in before.gradients.items())]
            if not all(np.allclose(ours, theirs, atol=1e-6) for ours, theirs in pairs):
                raise Failed(
                    f"at a progress of {progress:g}, '{name}' = {moved:.4g} gives something else than {value:.4g}"
                )


@check(
    "policy_loss",
    "loss_term",
    reads=["entropy"],
    when=lambda component: bool(_floors(component)),
    fix="Penalise what is below the floor: max(0, floor - entropy).",
)
def a_floor_is_below(subject: Subject) -> None:
    """Below a number called `floor` or `min_entropy`, descending raises the entropy, and no less than above it.

    Turned round it is a ceiling: entropy is lowered until it is there, and nothing holds it.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name in (name for name in _floors(subject.component) if name in subject.floats):
        floor = subject.floats[name]
        levels = (np.where(fields["mask"], max(floor * by, 0.0), 0).astype(np.float32) for by in (0.25, 4.0))
        gradients = [case.run(fields | {"entropy": level}).gradients["entropy"] for level in levels]
        if not any(gradient.any() for gradient in (*gradients, case.run(fields).gradients["entropy"])):
            continue  # it learns nothing through the entropy: it may be the floor of a weight
        pulls = [float(gradient.sum()) for gradient in gradients]
        if pulls[0] > min(pulls[1], 0) - EPSILON:
            raise Failed(
                f"with '{name}' = {floor:g} the gradients by entropy add up to {pulls[0]:.6g} where it is"
                f" {floor / 4:.4g}, and to {pulls[1]:.6g} where it is {4 * floor:.4g}"
            )


@check(
    "policy_loss",
    "loss_term",
    "loss_mask",
    "field",
    "reward_shaping",
    "completion_filter",
    "advantage",
    reads=["scores"],
    when=lambda component: SUCCESS in component.params,
    fix="Reaching it is enough: scores >= success_at.",
)
def reaching_it_is_success(subject: Subject) -> None:
    """A score that equals `success_at` counts as one that is above it.

    With rewards of 0 and 1 and a bound of 1, nothing ever succeeds that has to exceed it.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    offered = [subject.params[SUCCESS], *off_by_default(subject.component, SUCCESS)]
    bound = next((float(value) for value in offered if isinstance(value, int | float)), None)
    if bound is None:
        raise Inapplicable(f"'{SUCCESS}' is {subject.params[SUCCESS]!r}, not a number")
    given = {SUCCESS: np.float32(bound)} if subject.params[SUCCESS] is None else {}
    found = [
        case.run(batch.with_scores(fields, np.full(batch.ROWS, bound + off)), subject.floats | given)
        for off in (-1e-3 * max(1.0, abs(bound)), 0.0, 1e-3 * max(1.0, abs(bound)))
    ]
    below, at, above = (
        np.where(fields["mask"] if each.value.shape == fields["mask"].shape else True, each.value, 0) for each in found
    )
    if np.abs(above - below).max() > 0.05 and np.abs(at - below).max() < 0.1 * np.abs(above - below).max():
        raise Failed(f"a score of {bound:g}, which is '{SUCCESS}', counts as one below it")


@check(
    "advantage",
    reads=["scores"],
    unless="not_monotone",
    when=lambda component: any(QUANTILE.search(name) for name in component.params),
    fix="Pass it as it is: the quantile of 0.9 is the score that nine tenths do not exceed.",
)
def a_higher_quantile_is_a_higher_baseline(subject: Subject) -> None:
    """The larger a number called `quantile` is, the lower are the advantages that are compared with it.

    Counted from the other end, an ambitious baseline becomes a lenient one.
    """
    case = ArrayCase.of(subject)
    fields = batch.with_scores(case.fields(), np.linspace(0, 1, batch.ROWS) ** 2)
    for name in (name for name in subject.floats if QUANTILE.search(name)):
        if all(allows(subject.component, name, value) for value in (0.2, 0.8)):
            low, high = (
                float(np.where(fields["mask"], case.run(fields, subject.floats | {name: np.float32(q)}).value, 0).sum())
                for q in (0.2, 0.8)
            )
            if high > low + EPSILON:
                raise Failed(f"the advantages add up to {low:.6g} with '{name}' = 0.2, and to {high:.6g} with 0.8")


def _off_at_zero(component: Component) -> list[str]:
    """Return the numbers of which the docstring says that zero changes nothing."""
    return [name for name in component.params if ZERO.search(said_of(component, name))]


@check(
    "reward_shaping",
    reads=["token_rewards"],
    when=lambda component: bool(_off_at_zero(component)),
    fix="Multiply what is added by it, and what is left by one less it.",
)
def zero_changes_nothing(subject: Subject) -> None:
    """If the docstring says of a number that zero changes nothing, the rewards are then what they were.

    Read the other way round, the setting that is to switch it off is its full strength.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name in _off_at_zero(subject.component):
        if name in subject.floats and allows(subject.component, name, 0.0):
            value = case.run(fields, subject.floats | {name: np.float32(0)}).value
            changed = fields["mask"] & ~np.isclose(value, fields["token_rewards"], atol=1e-5)
            if changed.any():
                row, token = np.argwhere(changed)[0]
                raise Failed(
                    f"with '{name}' = 0 the reward of token [{row}, {token}] is {value[row, token]:.6g} instead of"
                    f" {fields['token_rewards'][row, token]:.6g}"
                )


def _floors(component: Component) -> list[str]:
    return [name for name in component.params if FLOOR.search(name)]

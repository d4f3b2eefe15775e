"""Claims about estimators beyond a sign: what a critic's values do, which tokens are reached, what a baseline does."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import finite, same
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.directions import EPSILON, ROW
from dovetail_kit.conformance.suites.memory import differ, first_state, next_state
from dovetail_kit.conformance.suites.numbers import has_state

SINGLE = 3
"""A row of the batch that has a single policy token."""
OFTEN = 100
SETTLED = 0.2
"""The share by which advantages may still change from the 100th to the 200th time that the same batch comes."""


def critic(component: Component) -> str | None:
    """Return the field with a critic's values that an estimator reads, or None."""
    return next((name for name in ("old_values", "values") if name in component.reads), None)


@check(
    "advantage",
    reads=["token_rewards"],
    when=lambda component: critic(component) is not None,
    name="a_single_token",
    fix="δ = reward + gamma · next value - value, with a next value of zero after the last token; returns = advantages"
    " + values.",
)
def a_single_token(subject: Subject) -> None:
    """For a completion of a single token the return is its reward, whatever the critic says, or stays the same share of
    the way behind it or beyond; and the advantage falls as the critic's value rises.

    A critic that is trained on advantages, or added instead of subtracted, drives itself away from the returns. A
    return that minds risk goes another share of the way up than down.
    """
    case = ArrayCase.of(subject)
    fields, name = case.fields(), critic(subject.component)
    assert name
    reward = float(fields["token_rewards"][SINGLE, 0])
    found = {}
    for value in (reward - 3, reward - 1, reward + 1, reward + 3):
        values = fields[name].copy()
        values[SINGLE, 0] = value
        found[value] = [float(result[SINGLE, 0]) for result in case.run(fields | {name: values}).values]
    (lowest, (high, *_)), *_, (highest, (low, *_)) = found.items()
    if not low < high - EPSILON:
        raise Failed(
            f"where the critic says {highest:.6g} instead of {lowest:.6g}, the advantage is {low:.6g} instead of"
            f" {high:.6g}"
        )
    shares = [(returns[0] - value) / (reward - value) for value, (_, *returns) in found.items() if returns]
    for side in (shares[:2], shares[2:]):
        if side and not (side[0] > 0 and abs(side[0] - side[1]) < EPSILON):
            told = ", ".join(
                f"{returns[0]:.6g} where the critic says {value:.6g}" for value, (_, *returns) in found.items()
            )
            raise Failed(f"the reward is {reward:.6g}, and the return is {told}")


@check(
    "advantage",
    reads=["scores"],
    when=lambda component: critic(component) is None and not component.declares.get("beyond_scores"),
    unless="not_monotone",
    fix="Spread the score's advantage over all policy tokens: dovetail.arrays.per_token(x, mask).",
)
def reaches_every_token(subject: Subject) -> None:
    """A better score of a completion raises the advantages of all of its policy tokens, not of some.

    Tokens whose advantages are always zero are not trained, and the share of those that are depends on the lengths.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    mask, base = fields["mask"], (np.arange(batch.ROWS) % 2).astype(np.float32)
    low, high = (
        case.run(batch.with_scores(fields, np.where(np.arange(batch.ROWS) == ROW, score, base))).value[ROW]
        for score in (0.0, 1.0)
    )
    changed = np.abs(high - low) > EPSILON
    if changed.any() and not changed[mask[ROW]].all():
        raise Failed(f"of {mask[ROW].sum()} policy tokens of a completion {changed.sum()} depend on its score")


def _taught(subject: Subject, fields: batch.Fields, scores: Any, times: int = OFTEN) -> Any:
    """Return the state after the same batch, with these scores, has come many times."""
    lesson = {name: value for name, value in batch.with_scores(fields, scores).items() if name != "state"}

    def often(state: Any) -> Any:
        return jax.lax.fori_loop(0, times, lambda _, kept: next_state(subject, kept, lesson), state)

    return jax.jit(often)(first_state(subject))


def _advantages(case: ArrayCase, fields: batch.Fields, state: Any) -> np.ndarray:
    value = case.run(fields | {"state": jax.tree.map(np.asarray, state)}).value
    return np.where(fields["mask"], value, 0)


@check("advantage", when=has_state, reads=["scores"], fix="Subtract what is remembered; keep a decaying mean.")
def a_baseline_lowers(subject: Subject) -> None:
    """What it remembers changes the advantages: they are no higher after better scores, and settle where nothing
    changes.

    A baseline that is added, moves away from the scores, is never read or grows without end adds noise, or worse.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    spread = np.linspace(-6.0, 6.0, batch.ROWS, dtype=np.float32)
    lessons = {"good": np.full(batch.ROWS, 5.0), "bad": np.full(batch.ROWS, -5.0), "mixed": spread}
    found = {name: _advantages(case, fields, _taught(subject, fields, scores)) for name, scores in lessons.items()}
    if all(np.allclose(value, found["good"], atol=EPSILON) for value in found.values()):
        raise Failed("the advantages are the same whatever the scores before were")
    if found["good"].sum() > found["bad"].sum() + EPSILON:
        raise Failed(
            f"after scores of 5 the advantages add up to {found['good'].sum():.6g}, after scores of -5 to"
            f" {found['bad'].sum():.6g}"
        )
    later = _advantages(case, fields, _taught(subject, fields, lessons["good"], 2 * OFTEN))
    moved, size = np.abs(later - found["good"]).max(), max(1.0, np.abs(found["good"]).max())
    if moved > SETTLED * size and not _comes_nearer(subject, case, fields, lessons["good"]):
        raise Failed(
            f"the same batch {OFTEN} times more moves an advantage by {moved:.6g}, although it is the same scores"
        )


def _comes_nearer(subject: Subject, case: ArrayCase, fields: batch.Fields, scores: Any) -> bool:
    """Tell whether a baseline that still moves is on its way to the scores that it is taught."""
    lesson = batch.with_scores(fields, scores)
    early, late = (np.abs(_advantages(case, lesson, _taught(subject, fields, scores, n * OFTEN))).max() for n in (1, 2))
    return bool(late < early)


@check("advantage", when=has_state, fix="Keep the state in float32, and return it as it is if no row has a token.")
def keeps_what_it_knows(subject: Subject) -> None:
    """Before it knows anything its advantages are finite, its state is in full precision, and a batch without policy
    tokens leaves it as it is.

    A mean in bfloat16 stops moving once steps are below 0.4 % of it. A step whose completions were all filtered out
    says nothing about the scores.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    begun = case.run(fields | {"state": jax.tree.map(np.asarray, first_state(subject))}).value
    finite(np.where(fields["mask"], begun, 0), "in the first step, before anything is remembered: the advantage")
    state = next_state(subject, first_state(subject), fields)
    for path, leaf in jax.tree.leaves_with_path(state):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype.itemsize < np.dtype(np.float32).itemsize:
            raise Failed(f"state{jax.tree_util.keystr(path)} is of type {leaf.dtype.name}")
    empty = batch.spoilt(batch.with_mask(fields, np.zeros_like(fields["mask"])), np.nan)
    after = next_state(subject, state, empty)
    for leaf, before in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        finite(leaf, "after a batch without policy tokens: the state")
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            same(leaf, before, "after a batch without policy tokens: the state")
    if not differ(state, first_state(subject)):
        raise Inapplicable("its state does not change: see the check 'learns_to_remember'")

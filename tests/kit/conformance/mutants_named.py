"""Broken components that contradict what a name, a unit or a neighbour says: bonuses, ends of a range, large numbers."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt, Interval
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_contrasts import GO_ON

import dovetail
from dovetail.arrays import Groups, full_precision, importance_ratio, log_ratio, masked, per_token
from dovetail.protocols import Result, Step

SHARE = Interval(ge=0, lt=1)
paid = dovetail.declares(
    examples=[({"completions": "#### 42", "answer": "42"}, {"completions": "#### 7", "answer": "42"})]
)


def said(text: str) -> str:
    """What stands behind the marker of an answer."""
    return text.rpartition("####")[2].strip()


@caught_by("policy_loss", "a_bonus_raises_entropy")
@dovetail.declares(regularised=True)
def adds_the_bonus(logps, old_logps, entropy, advantages, mask, *, bonus: Annotated[float, Ge(0)] = 0.01):
    _, ratio = importance_ratio(logps, old_logps, mask)
    return masked(-masked(advantages, mask) * ratio + bonus * masked(entropy, mask), mask)


@caught_by("policy_loss", "pulls_whatever_the_advantage")
@dovetail.declares(regularised=True)
def the_penalty_in_the_bracket(logps, old_logps, ref_logps, advantages, mask, *, beta: Annotated[float, Ge(0)] = 0.04):
    _, ratio = importance_ratio(logps, old_logps, mask)
    pull = 0.5 * log_ratio(logps, ref_logps, mask) ** 2
    return masked(-masked(advantages, mask) * (ratio - beta * pull), mask)


@caught_by("policy_loss", "begins_and_ends")
@dovetail.declares(on_policy_gradient=True, pessimistic=True)
def annealed_backwards(
    logps,
    old_logps,
    advantages,
    mask,
    progress,
    *,
    epsilon: Annotated[float, SHARE] = 0.3,
    epsilon_final: Annotated[float, SHARE] = 0.1,
):
    _, ratio = importance_ratio(logps, old_logps, mask)
    a, width = masked(advantages, mask), epsilon_final + (epsilon - epsilon_final) * progress
    return masked(jnp.maximum(-a * ratio, -a * jnp.clip(ratio, 1 - width, 1 + width)), mask)


@right("policy_loss")
@dovetail.declares(on_policy_gradient=True, pessimistic=True)
def annealed(
    logps,
    old_logps,
    advantages,
    mask,
    progress,
    *,
    epsilon: Annotated[float, SHARE] = 0.3,
    epsilon_final: Annotated[float, SHARE] = 0.1,
):
    """PPO with a clip range that narrows.

        L = max(-A r, -A clip(r, 1 ± ε)),  ε = epsilon + (epsilon_final - epsilon) progress

    for logps, old_logps and advantages on the mask.
    """
    _, ratio = importance_ratio(logps, old_logps, mask)
    a, width = masked(advantages, mask), epsilon + (epsilon_final - epsilon) * progress
    return masked(jnp.maximum(-a * ratio, -a * jnp.clip(ratio, 1 - width, 1 + width)), mask)


@right("policy_loss")
def a_random_half(logps, advantages, mask, row_keys, *, rate: Annotated[float, SHARE] = 0.5):
    """-b A log π / (1 - rate) on the mask, b drawn by row_keys: from logps and advantages, a rate of tokens left out."""
    columns = jnp.arange(mask.shape[1])
    draws = jax.vmap(lambda key: jax.vmap(lambda t: jax.random.uniform(jax.random.fold_in(key, t)))(columns))(row_keys)
    return jnp.where(mask & (draws >= rate), -masked(advantages, mask) * masked(logps, mask) / (1.0 - rate), 0.0)


@caught_by("value_loss", "no_jumps")
def without_its_factor(values, returns, mask, *, delta: Annotated[float, Gt(0)] = 0.5):
    size = jnp.abs(masked(values, mask) - masked(returns, mask))
    return masked(jnp.where(size <= delta, 0.5 * size**2, size - 0.5 * delta), mask)


@right("value_loss")
def part_of_the_way(values, old_values, returns, mask, *, rate: Annotated[float, Interval(gt=0, le=1)] = 0.5):
    """½ (V - T)², T = old_values + rate (returns - old_values), of values on the mask."""
    old = masked(full_precision(old_values), mask)
    target = jax.lax.stop_gradient(old + rate * (masked(full_precision(returns), mask) - old))
    return masked(0.5 * (masked(full_precision(values), mask) - target) ** 2, mask)


@caught_by("advantage", "shift_invariance")
@dovetail.declares(shift_invariant=True, zero_mean=True)
def squares_less_the_square(scores, group_ids, mask, *, epsilon: Annotated[float, Gt(0)] = 1e-4):
    groups = Groups.of(group_ids, mask)
    s = masked(full_precision(scores), groups.live)
    mean = groups.total(s) / groups.sizes
    variance = jnp.maximum(groups.total(s**2) / groups.sizes - mean**2, 0.0)
    return per_token(groups.deviations(scores) / (jnp.sqrt(variance) + epsilon), mask)


@caught_by("reward", "by_its_group")
def groups_lie_together(completions, group_ids):
    ends = [text.split()[-1] if text.split() else "" for text in completions]
    size = max(len(ends) // max(len(set(group_ids)), 1), 1)
    found = []
    for row, end in enumerate(ends):
        first = row // size * size
        others = [ends[other] for other in range(first, min(first + size, len(ends))) if other != row]
        found.append(sum(other != end for other in others) / len(others) if others else 0.0)
    return found


@caught_by("reward", "right_whatever_the_number")
@paid
def strips_separators_of_one_side(completions, answer):
    return [float(said(text).replace(",", "") == truth) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "right_whatever_the_number")
@paid
def within_a_share_of_the_truth(completions, answer):
    found = []
    for text, truth in zip(completions, answer, strict=True):
        try:
            found.append(float(abs(float(said(text)) - float(truth)) <= 1e-9 * float(truth)))
        except ValueError:
            found.append(float(said(text) == truth))
    return found


@caught_by("reward", "tells_large_numbers_apart")
@paid
def in_single_precision(completions, answer):
    found = []
    for text, truth in zip(completions, answer, strict=True):
        number = re.fullmatch(r"-?\d{1,30}", said(text))
        found.append(float(bool(number) and np.float32(said(text)) == np.float32(truth)))
    return found


@caught_by("answer", "other_numbers_vote_apart")
def without_zeros(completions):
    found = [re.findall(r"-?\d+(?:\.\d+)?", text)[-1:] for text in completions]
    return [(each[0].strip("0").rstrip(".") or "0") if each else None for each in found]


@caught_by("tool", "leaves_its_state")
def notes(note: str, state: Any) -> Result:
    """Write a note down.

    Args:
        note: what to remember.
        state: the notes so far.
    """
    kept = [] if state is None else state
    kept.append(note)
    return Result("\n".join(kept), state=kept)


@caught_by("interaction", "equal_states_are_anchored_alike")
@attrs.frozen(kw_only=True)
class AnchorsByIdentity:
    columns: ClassVar[tuple[str, ...]] = ()

    def reset(self, example: Any, rng: Any) -> Any:
        return (0, 0), ()

    def step(self, state: Any, turn: Any, rng: Any) -> Step:
        return Step(state=(state[0] + len(turn.text) % 2, state[1] + 1), messages=GO_ON, done=state[1] >= 3)

    def anchor(self, state: Any) -> Any:
        return state[0], Place(state)


class Place:
    """A place without a notion of equality."""

    def __init__(self, state: Any) -> None:
        self.state = state

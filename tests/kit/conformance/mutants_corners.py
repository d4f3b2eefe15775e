"""Components that are wrong where something is empty, zero or said twice."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

import attrs
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_contrasts import GO_ON, Bytes, Counts

import dovetail
from dovetail.arrays import Groups, Turns, full_precision, masked, per_token
from dovetail.protocols import Step


@caught_by("loss_agg", "normaliser")
@dovetail.declares(sums_to_one=True)
def over_the_highest_turn_number(turns, mask):
    of = Turns.of(turns, mask)
    count = jnp.max(jnp.where(mask, turns + 1, 0), axis=1, keepdims=True).astype(jnp.float32)
    share = of.per_token(1.0 / jnp.maximum(of.lengths, 1.0))
    return share / jnp.maximum(count, 1.0) / jnp.maximum(jnp.sum(count > 0), 1.0)


@right("loss_agg")
@dovetail.declares(sums_to_one=True)
def over_turns_with_tokens(turns, mask):
    """w = 1 / (n·K·N), with n the tokens of one of the turns, K the turns of a completion that the mask has, N completions."""
    of = Turns.of(turns, mask)
    count = jnp.sum(of.live, axis=1, keepdims=True, dtype=jnp.float32)
    share = of.per_token(1.0 / jnp.maximum(of.lengths, 1.0))
    return share / jnp.maximum(count, 1.0) / jnp.maximum(jnp.sum(count > 0), 1.0)


@caught_by("reward_shaping", "padding_for_other_numbers")
def spread_to_a_power(token_rewards, lengths, mask, *, power: Annotated[float, Ge(0)] = 1.0):
    """The sum of token_rewards, spread as n**power, with n the lengths on the mask."""
    parts = jnp.where(mask, lengths[:, None], 0.0) ** power
    total = jnp.sum(masked(full_precision(token_rewards), mask), axis=1, keepdims=True)
    return jnp.where(mask, total * parts / jnp.maximum(jnp.sum(parts, axis=1, keepdims=True), 1e-6), 0.0)


@caught_by("completion_filter", "finite_results")
def share_of_errors(mask, tool_errors, turn_mask, *, most: Annotated[float, Ge(0)] = 0.5):
    turns = jnp.sum(turn_mask, axis=1, dtype=jnp.float32)
    kept = mask & (tool_errors <= most * turns)[:, None]
    return kept, {"errors": jnp.mean(tool_errors / turns)}


@attrs.frozen(kw_only=True)
class DrawsByItsSpread:
    """A group of the step before, drawn by the power of the deviation of its scores.

    Attributes:
        alpha: the power.
    """

    groups: ClassVar[int] = 1
    alpha: Annotated[float, Ge(0)] = 1.0

    def init(self, empty: Any) -> Any:
        return {name: np.zeros((3, *array.shape), array.dtype) for name, array in empty.items()}

    def weight(self, spread: Any) -> Any:
        return np.where(spread > 0, spread**self.alpha, 0.0)

    def step(self, state: Any, fresh: Any, rng: Any) -> Any:
        weight = self.weight(state["scores"].std(axis=1)) * state["mask"].any(axis=(1, 2))
        kept = {name: array.copy() for name, array in fresh.items()}
        if not weight.any():
            return {name: np.zeros_like(array[:1]) for name, array in state.items()}, kept
        drawn = rng.choice(3, p=weight / weight.sum())
        return {name: array[[drawn]] for name, array in state.items()}, kept


right("replay")(DrawsByItsSpread)


@caught_by("replay", "a_power_of_zero_lets_nothing_in")
@attrs.frozen(kw_only=True)
class DrawsWhatHasNoSpread(DrawsByItsSpread):
    def weight(self, spread: Any) -> Any:
        return spread**self.alpha


@attrs.frozen(kw_only=True)
class GoesByTheLast(Counts):
    """The last number of a turn with three digits is how far the policy has counted."""

    at: ClassVar[int] = -1

    def step(self, state: Any, turn: Any, rng: Any) -> Step:
        found = re.findall(r"\b\d{3}\b", turn.text)
        done = state >= 2
        reward = float(found[self.at]) if found else 0.0
        return Step(state=state + 1, messages=() if done else GO_ON, reward=reward, done=done)


right("interaction")(GoesByTheLast)


@caught_by("interaction", "the_number_that_it_says")
@attrs.frozen(kw_only=True)
class GoesByTheFirst(GoesByTheLast):
    """The last number of a turn with three digits is how far the policy has counted."""

    at: ClassVar[int] = 0


@attrs.frozen(kw_only=True)
class _Digits(Bytes):
    """Bytes; but a digit is that of its value, in whatever script."""

    def encode(self, text: str) -> list[int]:
        return super().encode("".join(str(int(letter)) if letter.isdecimal() else letter for letter in text))


@caught_by("tokenizer", "round_trip")
@attrs.frozen(kw_only=True)
class DigitsOfAnyScript:
    def make(self, corpus: Any) -> Any:
        return _Digits()


@right("advantage")
@dovetail.declares(across_groups=True, beyond_scores=True)
def drawn_to_the_batch(scores, group_ids, mask):
    """A_i = s_i - (m_G + m) / 2, with s the scores, and m their mean over group_ids and over the rows of the mask."""
    groups, batch = Groups.of(group_ids, mask), Groups.whole(mask)
    s = masked(full_precision(scores), groups.live)
    return per_token(s - (groups.total(s) / groups.sizes + batch.total(s) / batch.sizes) / 2, mask)


@caught_by("advantage", "whitened")
@dovetail.declares(whitened=True, beyond_scores=True)
def only_centred(scores, mask):
    batch = Groups.whole(mask)
    s = masked(full_precision(scores), batch.live)
    return per_token(3.0 * (s - batch.total(s) / batch.sizes), mask)


@right("advantage")
@dovetail.declares(shift_invariant=True, zero_mean=True)
def among_its_role(scores, group_ids, role_ids, mask):
    """A_i = s_i - m_i, with s the scores, and m their mean over rows of the mask with i's group_ids and role_ids."""
    groups = Groups.of(2 * group_ids + role_ids, mask)
    s = masked(full_precision(scores), groups.live)
    return per_token(s - groups.total(s) / groups.sizes, mask)


@right("loss_agg")
@dovetail.declares(sums_to_one=True)
def by_freshness(mask, staleness):
    """w = 2^-staleness, divided by its sum over the mask."""
    weights = jnp.where(mask, 2.0 ** -staleness.astype(jnp.float32), 0.0)
    return weights / jnp.maximum(jnp.sum(weights), 1e-6)


@right("loss_term")
@dovetail.declares(settings={"worst": 0.5})
def of_bad_ones(logps, scores, mask, *, worst: float = 0.0):
    """L = logps on the mask of completions whose scores are at most `worst`."""
    bad = masked(full_precision(scores), jnp.any(mask, axis=1)) <= worst
    return jnp.where(mask & bad[:, None], full_precision(logps), 0.0)

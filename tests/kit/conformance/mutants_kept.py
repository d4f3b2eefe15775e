"""Broken components that move what should be kept: a reference point, the scale of a norm, a figure beside a NaN."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optax
from annotated_types import Ge, Gt
from tests.kit.conformance.mutants import caught_by, right

import dovetail
from dovetail.arrays import Groups, at_finite, full_precision, log_ratio, per_token
from dovetail.protocols import Step

LIMITED = {"unbiased_value": False, "unbiased_gradient": False, "zero_expected_gradient": False, "non_negative": True}


def _beyond(logps: Any, ref_logps: Any, bound: Any, tangent: Any) -> Any:
    def value(x: Any) -> Any:
        near = jnp.minimum(-x, bound)
        root = jnp.expm1(0.5 * near)
        return 2.0 * root**2 + tangent(2.0 * root * (root + 1.0) * (-x - near))

    return at_finite(value, full_precision(logps) - full_precision(ref_logps))


@caught_by("kl", "finite_differences")
@dovetail.declares(**LIMITED)
def lets_go_beyond_its_bound(logps, ref_logps, *, bound: Annotated[float, Gt(0)] = 10.0):
    return _beyond(logps, ref_logps, bound, jax.lax.stop_gradient)


@right("kl")
@dovetail.declares(**LIMITED)
def goes_on_as_a_line(logps, ref_logps, *, bound: Annotated[float, Gt(0)] = 10.0):
    """2 (1 - e^(-x/2))², x = logps - ref_logps; below -bound it goes on as its tangent, not differentiated as a factor."""

    def value(x: Any) -> Any:
        root = jnp.expm1(0.5 * jnp.minimum(-x, bound))
        slope = 2.0 * jnp.expm1(0.5 * bound) * (jnp.expm1(0.5 * bound) + 1.0)
        return 2.0 * root**2 + slope * jnp.maximum(-x - bound, 0.0)

    return at_finite(value, full_precision(logps) - full_precision(ref_logps))


@right("kl")
@dovetail.declares(**LIMITED)
def flat_beyond_its_bound(logps, ref_logps, *, bound: Annotated[float, Gt(0)] = 2.0):
    """min(½ x², bound), x = logps - ref_logps: what costs as much as anything can is not pulled back."""
    gap = full_precision(logps) - full_precision(ref_logps)
    return at_finite(lambda x: jnp.minimum(0.5 * x * x, bound), gap)


def _prospects(logps: Any, ref_logps: Any, group_ids: Any, mask: Any, beta: Any, held: Any) -> Any:
    delta = jnp.sum(log_ratio(logps, ref_logps, mask), axis=-1)
    groups = Groups.of(group_ids, mask)
    point = jnp.maximum(held(groups.total(delta) / groups.sizes), 0.0)
    return per_token(jax.nn.sigmoid(beta * (point - delta)), mask)


@caught_by("loss_term", "holds_something_fixed")
@dovetail.declares(whole_groups=True, surrogate=True)
def moves_its_reference_point(logps, ref_logps, group_ids, mask, *, beta: Annotated[float, Gt(0)] = 0.1):
    return _prospects(logps, ref_logps, group_ids, mask, beta, lambda x: x)


@right("loss_term")
@dovetail.declares(whole_groups=True, surrogate=True)
def holds_its_reference_point(logps, ref_logps, group_ids, mask, *, beta: Annotated[float, Gt(0)] = 0.1):
    """σ(beta (sg(z) - Δ)), Δ the sum of logps - ref_logps over the mask, z its mean over a group of group_ids."""
    return _prospects(logps, ref_logps, group_ids, mask, beta, jax.lax.stop_gradient)


@caught_by("loss_mask", "no_weight_is_negative")
def turns_what_moved_far(logps, old_logps, mask, *, slope: float = 0.5):
    return jnp.where(mask, 1.0 - slope * jnp.abs(log_ratio(logps, old_logps, mask)), 0.0)


@caught_by("correction", "no_weight_is_negative")
@dovetail.declares(scales=True)
def turns_what_is_rare(old_logps, rollout_logps, mask):
    return jnp.where(mask, 1.0 + log_ratio(old_logps, rollout_logps, mask), 0.0)


def _decays(lr: Any, decay: Any, spared: int) -> optax.GradientTransformation:
    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        def step(g: Any, p: Any) -> Any:
            return -lr * (jnp.sign(g) + (decay * p if jnp.ndim(p) >= spared else 0.0))

        return jax.tree.map(step, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


@caught_by("optimizer", "decay_spares_what_it_says")
@attrs.frozen(kw_only=True)
class DecaysItsNorms:
    """Steps of one size.

    Attributes:
        weight_decay: λ, decoupled; only arrays with two axes or more decay, so neither norms nor biases.
    """

    weight_decay: Annotated[float, Ge(0)] = 0.0

    def __call__(self, lr: Any) -> Any:
        return _decays(lr, self.weight_decay, 1)


@caught_by("optimizer", "decay_spares_what_it_says")
@attrs.frozen(kw_only=True)
class DecaysItsNormsAsOthersDo:
    """Steps of one size; the scales of norms do not decay.

    Attributes:
        weight_decay: λ, decoupled: it applies to matrices only.
    """

    weight_decay: Annotated[float, Ge(0)] = 0.0

    def __call__(self, lr: Any) -> Any:
        return _decays(lr, self.weight_decay, 0)


@right("optimizer")
@attrs.frozen(kw_only=True)
class DecaysMatrices:
    """Steps of one size.

        θ ← θ - lr (sign g + λ θ)

    Attributes:
        weight_decay: λ, decoupled; matrices only, so that neither norms nor biases decay.
    """

    weight_decay: Annotated[float, Ge(0)] = 0.0

    def __call__(self, lr: Any) -> Any:
        return _decays(lr, self.weight_decay, 2)


@right("optimizer")
@attrs.frozen(kw_only=True)
class DecaysAll:
    """Steps of one size, with decoupled decay and without bias correction, whatever the norms of gradients are.

        θ ← θ - lr (sign g + λ θ)

    Attributes:
        weight_decay: λ, of all weights, also of norms and biases; it is not scaled by a norm.
    """

    weight_decay: Annotated[float, Ge(0)] = 0.0

    def __call__(self, lr: Any) -> Any:
        return _decays(lr, self.weight_decay, 0)


@attrs.frozen(kw_only=True)
class _Bandit:
    arms: int = 3
    turns: int = 4
    columns = ()

    def reset(self, example: Any, rng: Any) -> Any:
        return (tuple(rng.uniform(0.2, 0.8, size=self.arms).tolist()), 0, 0.0), ()

    def step(self, state: Any, turn: Any, rng: Any) -> Step:
        chances, turns, regret = state
        numbers = re.findall(r"\d+", turn.text)
        arm = int(numbers[-1]) - 1 if numbers else -1
        known = self.knows(arm)
        chance = chances[arm] if known else 0.0
        won = bool(rng.random() < chance)
        regret += (max(chances) - self.counted(chance, won)) / self.turns
        said = ("won" if won else "lost") if known else "no such arm"
        return Step(
            state=(chances, turns + 1, regret),
            messages=({"role": "user", "content": said},),
            reward=won / self.turns,
            done=turns + 1 >= self.turns,
            metrics={"regret": regret},
        )

    def knows(self, arm: int) -> bool:
        return 0 <= arm < self.arms

    def counted(self, chance: float, won: bool) -> float:
        return chance


@caught_by("interaction", "no_number_is_no_answer")
@attrs.frozen(kw_only=True)
class PullsTheLastArmInSilence(_Bandit):
    """Pulls the arm that is the last number of a turn."""

    def knows(self, arm: int) -> bool:
        return arm < self.arms


@caught_by("interaction", "regret_is_no_luck")
@attrs.frozen(kw_only=True)
class RegretsItsLuck(_Bandit):
    """Pulls the arm that is the last number of a turn."""

    def counted(self, chance: float, won: bool) -> float:
        return float(won)


@right("interaction")
@attrs.frozen(kw_only=True)
class Arms(_Bandit):
    """Pulls the arm that is the last number of a turn, of so many arms, for so many turns."""


@right("interaction")
@attrs.frozen(kw_only=True)
class Board:
    """A piece is moved over a board, which is an array, beside the number of its moves."""

    columns: ClassVar = ()

    def reset(self, example: Any, rng: Any) -> Any:
        board = np.zeros((3, 3), np.int8)
        board[1, 1] = 1
        return (board, {"moves": 0}), ({"role": "user", "content": "left or right?"},)

    def step(self, state: Any, turn: Any, rng: Any) -> Step:
        board, moves = state[0], state[1]["moves"] + 1
        board = np.roll(board, -1 if turn.text == "left" else 1, axis=1)
        said = {"role": "user", "content": str(int(board[1].argmax()))}
        return Step(state=(board, {"moves": moves}), messages=(said,), reward=float(board[1, 2]), done=moves == 3)


@caught_by("interaction", "is_a_function")
@attrs.frozen(kw_only=True)
class SpoilsItsBoard(Board):
    """Moves the piece on the board that it is given."""

    def step(self, state: Any, turn: Any, rng: Any) -> Step:
        step = super().step(state, turn, rng)
        state[0][:] = step.state[0]
        return step


@attrs.frozen
class _Best:
    file: Path
    ends_at_a_nan: bool
    best: dict[str, float] = attrs.field(factory=dict)

    def write(self, step: int, metrics: Any) -> None:
        for name, value in metrics.items():
            if not math.isfinite(value):
                if self.ends_at_a_nan:
                    break
                continue
            self.best[name] = max(value, self.best.get(name, value))
        lines = self.file.read_text() if self.file.exists() else ""
        self.file.write_text(f"{lines}{json.dumps([step, self.best])}\n")

    def close(self) -> None:
        """All is written."""


@caught_by("sink", "a_nan_hides_nothing_else")
@attrs.frozen(kw_only=True)
class EndsAtANan:
    def open(self, folder: Path, total_steps: int, start_step: int) -> _Best:
        return _Best(folder / "best.jsonl", ends_at_a_nan=True)


@right("sink")
@attrs.frozen(kw_only=True)
class PassesOverNan:
    """Writes the highest figures so far, one line for each record; a resumed run begins with what the engine has."""

    def open(self, folder: Path, total_steps: int, start_step: int) -> _Best:
        sink = _Best(folder / "best.jsonl", ends_at_a_nan=False)
        sink.file.write_text("")
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            del record["phase"]
            sink.write(record.pop("step"), record)
        return sink

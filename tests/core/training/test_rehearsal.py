"""What a component gets wrong is found on shapes, before the warm start and before anything is sampled."""

import re

import attrs
import jax.numpy as jnp
import pytest
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import PluginError
from dovetail.training import loop
from dovetail.training.rehearsal import Rehearsal


def raising_loss(logps, advantages, mask):
    """A loss that multiplies matrices."""
    return -logps @ advantages


def summed_loss(logps, advantages, mask):
    """A loss that adds its tokens up."""
    return -jnp.sum(jnp.where(mask, logps * advantages, 0.0), axis=1)


def forgetful_loss(logps, advantages, mask):
    """A loss that ends without `return`."""
    jnp.where(mask, logps * advantages, 0.0)


def branching_loss(logps, advantages, mask):
    """A loss that looks at what is traced."""
    return -logps * advantages if advantages.mean() > 0 else logps


def float_filter(mask):
    """A filter of completions that returns weights."""
    return jnp.where(mask, 1.0, 0.0)


def square_advantage(scores, group_ids):
    """An estimator that compares all with all."""
    return scores[:, None] - scores[None]


def wide_quantity(logits):
    """A field with an axis too many."""
    return jnp.max(logits, axis=-1, keepdims=True)


def reads_quantity(wide_quantity, mask):
    """A term of the loss."""
    return jnp.where(mask, wide_quantity, 0.0)


def measuring_loss(logps, advantages, mask):
    """A loss with a metric of its own."""
    return jnp.where(mask, -logps * advantages, 0.0), {"x": jnp.zeros((3, 2))}


def naming_loss(logps, advantages, mask):
    """A loss that names what it returns."""
    return {"loss": jnp.where(mask, -logps * advantages, 0.0)}


def naming_shaping(token_rewards, mask):
    """A shaping that names what it returns."""
    return {"token_rewards": token_rewards}


def naming_quantity(logits):
    """A field that names what it returns."""
    return {"naming_quantity": jnp.max(logits, axis=-1)}


def reads_naming(naming_quantity, mask):
    """A term of the loss."""
    return jnp.where(mask, naming_quantity, 0.0)


def raising_value_loss(values, returns, mask):
    """A value loss that misses an argument."""
    return jnp.where(mask, (values - returns) ** 2)


def whole_loss(logps, advantages, mask):
    """A loss of whole numbers."""
    return jnp.where(mask, -logps * advantages, 0.0).astype(int)


def broken_schedule(step, total_steps):
    """A schedule that divides by what is left."""
    left = (total_steps - 1 - step).astype(jnp.float32)
    return left / left


def sinking_schedule(step, total_steps):
    """A schedule that goes on below zero."""
    return 0.5 - step / total_steps


@attrs.frozen(kw_only=True)
class Growing:
    """An estimator whose state grows."""

    def init(self, roles):
        """Begin with nothing."""
        return jnp.zeros(1)

    def update(self, scores, state, mask):
        """Add the scores."""
        return jnp.concatenate([state, scores])

    def __call__(self, scores, state, mask):
        """Return the scores."""
        return jnp.where(mask, scores[:, None], 0.0)


CASES = {
    "a loss that raises": (
        ("policy_loss", "raising_loss", raising_loss, "train.policy_loss=raising_loss"),
        r"policy_loss\.raising_loss of .* raised TypeError: dot_general .*",
    ),
    "a loss of another shape": (
        ("policy_loss", "summed_loss", summed_loss, "train.policy_loss=summed_loss"),
        r"policy_loss\.summed_loss of .* gives the loss the shape \(16,\); it has \(16, 6\) here, one number for each"
        r" token",
    ),
    "a loss without `return`": (
        ("policy_loss", "forgetful_loss", forgetful_loss, "train.policy_loss=forgetful_loss"),
        r"policy_loss\.forgetful_loss of .* returned None; a function without `return` does",
    ),
    "a loss without a gradient": (
        ("policy_loss", "whole_loss", whole_loss, "train.policy_loss=whole_loss"),
        r"policy_loss\.whole_loss of .* gives the loss as int32, which has no gradient; return floats",
    ),
    "a schedule that is not a number": (
        ("lr_schedule", "broken_schedule", broken_schedule, "train.lr_schedule=broken_schedule"),
        r"lr_schedule\.broken_schedule of .* returned nan for step \d+ of \d+; train\.lr is multiplied by it",
    ),
    "a schedule below zero": (
        ("lr_schedule", "sinking_schedule", sinking_schedule, "train.lr_schedule=sinking_schedule"),
        r"lr_schedule\.sinking_schedule of .* returned -0\.\d+ for step \d+ of \d+; train\.lr is multiplied by it",
    ),
    "a loss that branches": (
        ("policy_loss", "branching_loss", branching_loss, "train.policy_loss=branching_loss"),
        r"policy_loss\.branching_loss of .* raised TracerBoolConversionError: Attempted boolean conversion of traced"
        r" array with shape bool\[\]; it is traced: write jnp\.where for `if`, .*",
    ),
    "a mask of numbers": (
        ("completion_filter", "float_filter", float_filter, "train.completion_filter=['float_filter']"),
        r"completion_filter\.float_filter of .* gives 'mask' as float32; return booleans, as in `x > 0`",
    ),
    "an estimator of another shape": (
        ("advantage", "square_advantage", square_advantage, "train.advantage=square_advantage"),
        r"advantage\.square_advantage of .* gives 'advantages' the shape \(16, 16\); it has \(16, 6\) here, .*",
    ),
    "a state that grows": (
        ("advantage", "growing", Growing, "train.advantage=growing"),
        r"advantage\.growing of .* returned from `update` state float32 \(17,\), which was float32 \(1,\) before; .*",
    ),
    "a field of another shape": (
        ("field", "wide_quantity", wide_quantity, "train.loss_terms=['reads_quantity']"),
        r"field\.wide_quantity of .* returned \(96, 1\) for \(96,\) positions; .*",
    ),
    "a metric of another shape": (
        ("policy_loss", "measuring_loss", measuring_loss, "train.policy_loss=measuring_loss"),
        r"policy_loss\.measuring_loss of .* gives its metric 'x' the shape \(3, 2\); return one number, one for each"
        r" completion, \(16,\), or one for each token, \(16, 6\)",
    ),
    "a dict as a loss": (
        ("policy_loss", "naming_loss", naming_loss, "train.policy_loss=naming_loss"),
        r"policy_loss\.naming_loss of .* gives the loss as a dict of 1; return one array, or the array and .*",
    ),
    "a dict as a shaping": (
        ("reward_shaping", "naming_shaping", naming_shaping, "train.reward_shaping=['naming_shaping']"),
        r"reward_shaping\.naming_shaping of .* gives 'token_rewards' as a dict of 1; return one array, or .*",
    ),
    "a dict as a field": (
        ("field", "naming_quantity", naming_quantity, "train.loss_terms=['reads_naming']"),
        r"field\.naming_quantity of .* returned a dict for \(96,\) positions; .*",
    ),
    "a value loss that raises": (
        ("value_loss", "raising_value_loss", raising_value_loss, "critic.value_loss=raising_value_loss"),
        r"value_loss\.raising_value_loss of .* raised TypeError: where requires .*",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_found_before_the_warm_start(case, tmp_path):
    (kind, name, target, setting), message = CASES[case]
    dovetail.register("loss_term", "reads_quantity", reads_quantity)
    dovetail.register("loss_term", "reads_naming", reads_naming)
    dovetail.register(kind, name, target)
    own = ("train.advantage=gae",) if kind == "value_loss" else ()
    with pytest.raises(PluginError) as caught:
        loop.train(load(None, [*TINY, *own, setting]), tmp_path / "run")
    assert re.fullmatch(rf"{message} \[.*test_rehearsal\.py:\d+\]", str(caught.value))
    assert not (tmp_path / "run" / "metrics.jsonl").exists() or not (tmp_path / "run" / "metrics.jsonl").read_text()


def test_trials_that_differ_in_numbers_are_traced_once(tmp_path, monkeypatch):
    trace, traced = Rehearsal.__call__, []

    def counted(self, *arguments):
        traced.append(self)
        return trace(self, *arguments)

    monkeypatch.setattr(Rehearsal, "__call__", counted)
    for program in ("warm_start", "reinforce"):
        monkeypatch.setattr(loop, program, lambda *run: None)
    own = ("train.prompts=5",)  # that no other test has, because a process traces the same shapes once
    for number in (0.1, 0.2):
        loop.train(load(None, [*TINY, *own, f"policy_loss.grpo.epsilon_high={number}"]), tmp_path / str(number))
    assert len(traced) == 1

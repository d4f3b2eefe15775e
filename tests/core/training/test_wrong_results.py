"""Results that would fail far away, or be taken in silence, are refused with the component that gives them."""

import re

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import DovetailError
from dovetail.training import loop


def by_token(scores, group_ids, mask):
    """A group filter that judges tokens."""
    return mask


def weighing(scores, group_ids):
    """A group filter that returns weights."""
    return jnp.ones(len(scores))


def halving(scores, group_ids):
    """A group filter that keeps every other completion."""
    return jnp.arange(len(scores)) % 2 == 0


@attrs.frozen(kw_only=True)
class Diverging:
    """A controller whose coefficient becomes NaN after the first step."""

    def init(self, coef):
        """Begin with the coefficient."""
        return {"coef": jnp.float32(coef)}

    def coef(self, state):
        """Return it."""
        return state["coef"]

    def update(self, state, kl, samples):
        """Lose it."""
        return {"coef": state["coef"] * jnp.nan}


@attrs.frozen(kw_only=True)
class Incomplete:
    """A task with an example that lacks something."""

    lacks: str = "answer"

    columns = ("answer",)

    def examples(self, split):
        """Return examples; all are whole but one."""
        made = [{"prompt": f"{n}+1=", "answer": f"{n + 1}", "completion": f"{n + 1}"} for n in range(8)]
        made[5].pop(self.lacks)
        return made

    def corpus(self):
        """Return texts enough for the smallest vocabulary."""
        return [f"{a}+{b}={a + b}" for a in range(40) for b in range(40)]


@attrs.frozen(kw_only=True)
class Taciturn(Diverging):
    """A controller that forgets to return its coefficient."""

    def coef(self, state):
        """Look it up."""
        state["coef"]


@attrs.frozen(kw_only=True)
class Forgetful(Diverging):
    """A controller that forgets to return its state."""

    def update(self, state, kl, samples):
        """Compute it."""
        {"coef": state["coef"]}


@attrs.frozen(kw_only=True)
class Curious:
    """A curriculum that looks for what it has not kept."""

    def init(self, examples):
        """Keep something."""
        return {"seen": np.zeros(examples)}

    def choose(self, state, count, rng):
        """Choose the first."""
        return np.arange(count)

    def update(self, state, chosen, scores):
        """Look for another thing."""
        return {"seen": state["never"]}


@attrs.frozen(kw_only=True)
class Picky:
    """A sink that wants a metric which is not there."""

    def open(self, folder, total_steps, start_step):
        """Need nothing."""
        return self

    def write(self, step, metrics):
        """Want it."""
        return metrics["never"]

    def close(self):
        """Have nothing to close."""


@attrs.frozen(kw_only=True)
class Closed:
    """A sink that forgets to return itself."""

    def open(self, folder, total_steps, start_step):
        """Need nothing."""


@attrs.frozen(kw_only=True)
class Bare(Incomplete):
    """A task without a usable example."""

    gives: str = "nothing"

    def examples(self, split):
        """Return nothing, a generator, or prompts of another type."""
        if self.gives == "nothing":
            return []
        made = ({"prompt": n, "answer": "1", "completion": "1"} for n in range(5, 8))
        return made if self.gives == "a generator" else list(made)


@attrs.frozen(kw_only=True)
class Undemonstrated(Incomplete):
    """A task that has nothing to imitate."""

    def examples(self, split):
        """Return examples without completions."""
        return [{"prompt": f"{n}+1=", "answer": f"{n + 1}"} for n in range(8)]


def restructured(learning_rate):
    """An optimizer whose updates are a list."""
    return optax.stateless(lambda updates, params: jax.tree.leaves(updates))


def scalar_updates(learning_rate):
    """An optimizer whose updates are single numbers."""
    return optax.stateless(lambda updates, params: jax.tree.map(jnp.mean, updates))


ALONE = (*TINY, "sft.steps=0", "eval.every=None")
FILTER = (*ALONE, "train.refill_rounds=1")
CONTROLLED = (*ALONE, "train.kl_coef=0.1")
TASK = (*TINY, "train.task=incomplete", "eval.every=None")
CASES = {
    "a filter of tokens": (
        ("group_filter", "by_token", by_token),
        (*FILTER, "train.group_filter=by_token"),
        r"gives its decision the shape \(16, 6\); it has \(16,\) here, one number for each completion",
    ),
    "a filter of weights": (
        ("group_filter", "weighing", weighing),
        (*FILTER, "train.group_filter=weighing"),
        r"gives its decision as float32; return booleans, as in `x > 0`",
    ),
    "a filter of completions": (
        ("group_filter", "halving", halving),
        (*FILTER, "train.group_filter=halving"),
        r"keeps a group in part; return the same for all completions of a group",
    ),
    "a coefficient of NaN": (
        ("kl_controller", "diverging", Diverging),
        (*CONTROLLED, "train.kl_controller=diverging"),
        r"gives train\.kl_coef = nan; return one finite number",
    ),
    "no coefficient": (
        ("kl_controller", "taciturn", Taciturn),
        (*CONTROLLED, "train.kl_controller=taciturn"),
        r"gives train\.kl_coef = None; return one finite number",
    ),
    "no state": (
        ("kl_controller", "forgetful", Forgetful),
        (*CONTROLLED, "train.kl_controller=forgetful"),
        r"returned None from `update`; a function without `return` does",
    ),
    "a curriculum that raises": (
        ("curriculum", "curious", Curious),
        (*ALONE, "train.curriculum=curious"),
        r"raised KeyError: 'never'",
    ),
    "a sink that raises": (
        ("sink", "picky", Picky),
        (*ALONE, "run.sinks=['picky']"),
        r"raised KeyError: 'never'",
    ),
    "a sink that does not open": (
        ("sink", "closed", Closed),
        (*ALONE, "run.sinks=['closed']"),
        r"returned None from `open`; return an open sink",
    ),
    "an example without an announced column": (
        ("task", "incomplete", Incomplete),
        TASK,
        r"gives an example without 'answer', of completion, prompt",
    ),
    "an example without a prompt": (
        ("task", "incomplete", Incomplete),
        (*TASK, "task.incomplete.lacks='prompt'"),
        r"gives an example without 'prompt', of answer, completion",
    ),
    "a demonstration without a completion": (
        ("task", "incomplete", Incomplete),
        (*TASK, "task.incomplete.lacks='completion'"),
        r"gives an example without 'completion', of answer, prompt",
    ),
    "no examples": (
        ("task", "bare", Bare),
        (*TINY, "train.task=bare", "eval.every=None"),
        r"has no examples for 'train'",
    ),
    "examples in a generator": (
        ("task", "bare", Bare),
        (*TINY, "train.task=bare", "eval.every=None", "task.bare.gives='a generator'"),
        r"returned a generator for 'train'; return a sequence, which has a length and is indexed",
    ),
    "prompts that are numbers": (
        ("task", "bare", Bare),
        (*TINY, "train.task=bare", "eval.every=None", "task.bare.gives='numbers'"),
        r"gives an example whose prompt is 5; prompts are texts or messages",
    ),
    "no demonstrations": (
        ("task", "undemonstrated", Undemonstrated),
        (*TINY, "train.task=undemonstrated", "eval.every=None"),
        r"has no demonstrations \(examples with a completion\); set sft.steps = 0",
    ),
    "updates of another structure": (
        ("optimizer", "restructured", restructured),
        (*ALONE, "train.optimizer=restructured"),
        r"returned updates whose .* is missing; that of the parameters is of shape \(.*\)",
    ),
    "updates of another shape": (
        ("optimizer", "scalar_updates", scalar_updates),
        (*ALONE, "train.optimizer=scalar_updates"),
        r"returned updates whose .* is of shape \(\); that of the parameters is of shape \(.*\)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_result_is_refused_with_its_author(case, tmp_path):
    (kind, name, target), settings, said = CASES[case]
    dovetail.register(kind, name, target)
    with pytest.raises(DovetailError) as caught:
        loop.train(load(None, settings), tmp_path / "run")
    assert re.fullmatch(rf"{kind}\.{name} of .* {said} \[.*test_wrong_results\.py:\d+\]", str(caught.value))


@pytest.mark.slow
def test_the_state_before_a_wrong_coefficient_is_saved(tmp_path):
    dovetail.register("kl_controller", "diverging", Diverging)
    _, settings, _ = CASES["a coefficient of NaN"]
    with pytest.raises(DovetailError):
        loop.train(load(None, [*settings, "run.checkpoint_every=99"]), tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "steps" / "1").exists()

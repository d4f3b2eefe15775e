"""Unusual but correct components pass: a check that refused them would make their authors look for a nonexistent bug."""

from __future__ import annotations

import importlib
import math
import random
from typing import Annotated, Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from annotated_types import Ge, Gt, Lt
from tests.kit.conformance.mutants import CONTROLS, right
from tests.kit.conformance.mutants_batches import alive, group_mean, spread

import dovetail
from dovetail.arrays import gae_trace, log_ratio, masked, returns_to_go
from dovetail.registry import Component, Origin
from dovetail_kit.conformance.check import applicable
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.verdict import judge, report

PREFIX = "tests.kit.conformance.mutants_"
WITH_CONTROLS = (
    "apart",
    "bounds",
    "contrasts",
    "corners",
    "kept",
    "late",
    "limits",
    "loops",
    "manners",
    "meanings",
    "named",
    "phrases",
    "pulls",
    "ranges",
    "rates",
    "said",
    "slips",
    "spellings",
    "sweeps",
    "trees",
    "turned",
    "variants",
    "words",
)
for each in WITH_CONTROLS:
    importlib.import_module(PREFIX + each)

ANSWER = [({"completions": "42", "answer": "42"}, {"completions": "7", "answer": "42"})]


@right("policy_loss")
def likelihood_of_answers(answer_logps, answer_mask):
    """answer_logps ↦ -answer_logps where answer_mask is true."""
    return jnp.where(answer_mask, -jnp.where(answer_mask, answer_logps.astype(jnp.float32), 0.0), 0.0)


@right("reward")
@dovetail.declares(examples=ANSWER, range=(0, 1))
def a_tuple_of_booleans(completions, answer):
    """Whether completions are the answer."""
    return tuple(text == truth for text, truth in zip(completions, answer, strict=True))


@right("reward")
@dovetail.declares(examples=ANSWER, range=(0, 1))
def a_generator(completions, answer):
    """Whether completions are the answer."""
    return (np.float32(text == truth) for text, truth in zip(completions, answer, strict=True))


@right("reward")
@dovetail.declares(examples=ANSWER)
def above_the_mean_of_its_group(completions, answer, group_ids):
    """How much better than the group_ids say: scores of completions by answer, less their mean."""
    scores = [len(text) / 7 + 100.0 * (text == truth) for text, truth in zip(completions, answer, strict=True)]
    groups = {group: [s for s, g in zip(scores, group_ids, strict=True) if g == group] for group in group_ids}
    return [score - sum(groups[group]) / len(groups[group]) for score, group in zip(scores, group_ids, strict=True)]


@right("reward")
@dovetail.declares(examples=ANSWER, any_answer=True)
def the_answer_among_others(completions, answer):
    """Whether the answer is one of the words of completions."""
    return [float(truth in text.split()) for text, truth in zip(completions, answer, strict=True)]


@right("reward")
def near_an_answer_that_is_a_number(completions, answer):
    """How near completions, if they are numbers, are to the answer; its author has only numbers there."""
    return [1.0 / (1.0 + abs(len(text) - float(truth))) for text, truth in zip(completions, answer, strict=True)]


@right("reward_shaping")
def less_for_late_tokens(token_rewards, mask, *, rate: Annotated[float, Ge(0)] = 0.1):
    """token_rewards · exp(-rate·t) at the t-th token of the mask; the metric of a completion without any is 0/0."""
    decay = jnp.exp(-rate * jnp.cumsum(mask, axis=1))
    shaped = jnp.where(mask, token_rewards * decay, 0.0)
    return shaped, {"decay": jnp.sum(jnp.where(mask, decay, 0.0), axis=1) / jnp.sum(mask, axis=1)}


@right("advantage")
def minds_risk(token_rewards, values, mask, *, risk: Annotated[float, Ge(0), Lt(1)] = 0.3):
    """A = ∑(1 ∓ risk)·δ, less where what token_rewards and values promise is good news and more where it is bad."""
    errors = gae_trace(masked(token_rewards, mask), masked(values, mask), mask, 1.0, 0.0)
    advantages = returns_to_go(jnp.where(errors > 0, (1 - risk) * errors, (1 + risk) * errors), mask, 0.9)
    return advantages, masked(advantages + masked(values, mask), mask)


@right("policy_loss")
@dovetail.declares(on_policy_gradient=True, pessimistic=True)
def fades_as_a_bell(logps, old_logps, advantages, mask, *, sigma: Annotated[float, Gt(0)] = 0.2):
    """-A·σ·√(π/2)·erf(x / (σ√2)) where advantages and x = logps - old_logps agree in mask, σ = sigma; -A·x elsewhere.

    JAX computes some of its last digits otherwise where it is differentiated.
    """
    x, a = log_ratio(logps, old_logps, mask), masked(advantages, mask)
    moved = a * x > 0
    z = jnp.where(moved, x, 0.0) / sigma
    inside = sigma * math.sqrt(math.pi / 2) * jax.lax.erf(z / math.sqrt(2))
    return -a * jnp.where(moved, inside, x) + 0.0


@right("reward")
def easy_to_read(completions, *, least: Annotated[int, Ge(1)] = 3):
    """Letters per word of completions, turned round; 0 for a short text.

    Args:
        least: the number of words from which on a text is judged.
    """
    words = [text.split() for text in completions]
    return [1 / (1 + sum(map(len, each)) / len(each)) if len(each) >= least else 0.0 for each in words]


@right("tool")
@dovetail.declares(deterministic=False)
def throw(sides: int) -> int:
    """Throw dice.

    Args:
        sides: how many a die has.
    """
    return random.randint(1, max(1, sides))


@right("tool")
def look_up(key: str, *, most: int = 5) -> str:
    """Look a word up, of which there are few.

    Args:
        key: the word.
        most: results at most.
    """
    return "; ".join({"word": ["some", "of", "many"]}.get(key, [])[:most]) or "nothing is found"


@right("curriculum")
@attrs.frozen(kw_only=True)
class OneAfterTheOther:
    """Prompts in order; it remembers where it is, and no scores."""

    def init(self, examples: int) -> dict[str, np.ndarray]:
        return {"next": np.zeros((), np.int64), "examples": np.array(examples)}

    def choose(self, state: Any, count: int, rng: Any) -> Any:
        return (state["next"] + np.arange(count)) % state["examples"]

    def update(self, state: Any, chosen: Any, scores: Any) -> Any:
        return state | {"next": np.asarray((state["next"] + len(chosen)) % state["examples"])}


@right("loss_agg")
@dovetail.declares(neither_mean_nor_sum=True)
def over_the_root_of_the_count(mask):
    """w = 1 / √count on the mask."""
    return mask / jnp.sqrt(jnp.maximum(jnp.sum(mask, dtype=jnp.float32), 1.0))


@right("policy_loss")
@dovetail.declares(regularised=True)
def within_a_band_of_entropy(
    logps, old_logps, entropy, advantages, mask, *, entropy_low: float = 0.5, entropy_high: float = 2.0
):
    """advantages · logps, less how far entropy is below entropy_low or above entropy_high; on the mask; old_logps."""
    x = jnp.where(mask, (logps - old_logps).astype(jnp.float32), 0.0)
    a = jnp.where(mask, advantages.astype(jnp.float32), 0.0)
    h = jnp.where(mask, entropy.astype(jnp.float32), 0.0)
    outside = jnp.maximum(entropy_low - h, 0.0) + jnp.maximum(h - entropy_high, 0.0)
    return jnp.where(mask, outside - a * jnp.tanh(x), 0.0)


@right("advantage")
@dovetail.declares(beyond_scores=True)
def shorter_is_better(lengths, group_ids, mask):
    """A = mean of lengths over group_ids - length, on the mask."""
    x, live = alive(lengths.astype(jnp.float32), mask)
    return spread(group_mean(x, group_ids, live) - x, mask)


@right("advantage")
@dovetail.declares(beyond_scores=True)
def with_a_cost_of_truncation(scores, truncated, group_ids, mask):
    """A = scores - mean over group_ids, and 0.5 less where truncated; on the mask."""
    x, live = alive(scores.astype(jnp.float32), mask)
    return spread(x - group_mean(x, group_ids, live) - 0.5 * truncated.astype(jnp.float32), mask)


@right("advantage")
def by_grade(scores, group_ids, grade, mask):
    """A = grade · (scores - mean over group_ids) on the mask, with a column of the task."""
    x, live = alive(scores.astype(jnp.float32), mask)
    x = x - jnp.min(jnp.where(live, x, jnp.inf), initial=9.0)
    gap = x - group_mean(x, group_ids, live)
    return spread(jnp.where(jnp.abs(gap) > 1e-3 * jnp.abs(x), grade.astype(jnp.float32) * gap, 0.0), mask)


@right("advantage")
def sign(scores, group_ids, mask):
    """A = the sign of scores against their mean over group_ids, a whole number on the mask."""
    x, live = alive(scores.astype(jnp.float32), mask)
    gap = x - group_mean(x, group_ids, live)
    return jnp.where(mask, jnp.where(jnp.abs(gap) > 1e-3 * jnp.abs(x), jnp.sign(gap), 0.0)[:, None], 0.0).astype(
        jnp.int32
    )


@right("advantage")
def in_bfloat16(scores, group_ids, mask):
    """max(scores - mean over group_ids, -9) on the mask, kept in half precision."""
    x, live = alive(scores.astype(jnp.float32), mask)
    gap = x - group_mean(x, group_ids, live)
    return spread(jnp.where(jnp.abs(gap) > 1e-3 * jnp.abs(x), gap, 0.0), mask).astype(jnp.bfloat16)


@right("loss_agg")
@dovetail.declares(leaves_out=True)
def but_for_the_first_token(mask):
    """w = 1 / count on the mask, and 0 on the first token."""
    later = mask & (jnp.cumsum(mask, axis=-1) > 1)
    return later / jnp.maximum(jnp.sum(later, dtype=jnp.float32), 1.0)


@right("schedule")
@dovetail.declares(signed=True)
@attrs.frozen(kw_only=True)
class Swings:
    """cos(2π step / total_steps)."""

    def __call__(self, step: Any, total_steps: Any) -> Any:
        return jnp.cos(2 * jnp.pi * step.astype(jnp.float32) / jnp.maximum(total_steps, 1).astype(jnp.float32))


@right("correction")
@dovetail.declares(scales=True)
def discounted(old_logps, rollout_logps, mask):
    """0.9 exp(old_logps - rollout_logps), at most 2, on the mask."""
    gap = jnp.where(mask, (old_logps - rollout_logps).astype(jnp.float32), 0.0)
    return jnp.where(mask, 0.9 * jnp.exp(jnp.minimum(gap, 0.7)), 0.0), mask


@right("reward_manager")
@dovetail.declares(needs_all=True)
@attrs.frozen(kw_only=True)
class Product:
    """The product of all rewards; a completion that one of them has not judged has none."""

    def __call__(self, score_table: Any, reward_names: Any) -> Any:
        return np.prod(score_table, axis=1)


@right("optimizer")
@attrs.frozen(kw_only=True)
class EveryFourth:
    """Gradient descent on sums of four gradients."""

    def __call__(self, lr: Any) -> Any:
        return optax.chain(optax.sgd(lr), optax.apply_every(4))


@right("optimizer")
@attrs.frozen(kw_only=True)
class OnlyCounts:
    """Gradient descent whose state is a single number, the count of its steps."""

    def __call__(self, lr: Any) -> Any:
        def update(gradient: Any, count: Any, params: Any = None) -> Any:
            return jax.tree.map(lambda x: -lr * x, gradient), count + 1

        return optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update)


@right("optimizer")
@dovetail.declares(undefined_at_rest=True)
@attrs.frozen(kw_only=True)
class FindsItsRate:
    """Prodigy, whose steps are tiny until it has found how large they may be."""

    def __call__(self, lr: Any) -> Any:
        return optax.contrib.prodigy(lr)


@right("policy_loss")
@dovetail.declares(surrogate=True)
def by_the_probability_itself(logps, old_logps, advantages, mask):
    """-advantages·p·r·logps where mask is true, r = exp(logps - old_logps) and p = exp(logps) without gradient.

    A ratio of e^200 is that of a token that was unlikely before; p is never above 1.
    """
    now, before = (jnp.where(mask, logps.astype(jnp.float32), 0.0) for logps in (logps, old_logps))
    weight = jax.lax.stop_gradient(jnp.exp(jnp.minimum(now - before, 20.0)) * jnp.exp(now))
    return jnp.where(mask, -advantages.astype(jnp.float32) * weight * now, 0.0)


@right("lr_schedule")
def but_for_a_power_of_what_has_passed(step, total_steps, *, power: Annotated[float, Gt(0)] = 0.5):
    """1 - (step / total_steps)^power, power 0.5 for the cool-down of Hägele et al. 2024; total_steps is the end."""
    return 1.0 - jnp.clip(step / total_steps, 0.0, 1.0) ** power


@right("curriculum")
@attrs.frozen(kw_only=True)
class WhereScoresChange:
    """Draw the prompts whose score was another one the time before; all alike if there are none."""

    def init(self, size):
        """Return the last score of each prompt, and whether it was another one before."""
        return {"last": np.full(size, np.nan), "moved": np.zeros(size)}

    def choose(self, state, count, rng):
        """Return prompts; state, count, rng."""
        weight = state["moved"] + 1e-3
        return rng.choice(len(weight), count, p=weight / weight.sum())

    def update(self, state, chosen, scores):
        """Compare with the last score; state, chosen, scores."""
        last, moved = state["last"].copy(), state["moved"].copy()
        for prompt, row in zip(chosen, scores, strict=True):
            if np.isfinite(row).any():
                now = float(row[np.isfinite(row)].mean())
                moved[prompt] = float(np.isfinite(last[prompt]) and now != last[prompt])
                last[prompt] = now
        return {"last": last, "moved": moved}


@right("completion_filter")
def no_errors(mask, tool_errors, *, forgiven: Annotated[int, Ge(0)] = 1):
    """mask, where tool_errors is at most forgiven."""
    return mask & (tool_errors <= forgiven)[:, None]


@right("field")
def most_likely(logits):
    """The id of the likeliest token: argmax of the logits."""
    return jnp.argmax(logits, axis=-1)


@right("loss_term")
@dovetail.declares(settings={"floor": 9.0})
def entropy_floor(entropy, mask, *, floor: float = 0.1):
    """max(floor - entropy, 0) on the mask: nothing where the entropy is high enough."""
    return jnp.where(mask, jnp.maximum(floor - jnp.where(mask, entropy.astype(jnp.float32), 0.0), 0.0), 0.0)


@right("lr_schedule")
def inverse_square_root(step, *, warmup: float = 100.0):
    """w = sqrt(warmup / (step + warmup)), however long the run is."""
    return jnp.sqrt(warmup / (step.astype(jnp.float32) + warmup))


@right("optimizer")
@dovetail.declares(noisy=True)
@attrs.frozen(kw_only=True)
class Shaken:
    """Gradient descent with noise from a key in its state."""

    def __call__(self, lr: Any) -> Any:
        return optax.noisy_sgd(lr, eta=1e-4, key=0)


@right("optimizer")
@dovetail.declares(scheduled=True)
@attrs.frozen(kw_only=True)
class SlowStart:
    """Adam whose first steps are small."""

    def __call__(self, lr: Any) -> Any:
        grows = optax.scale_by_schedule(lambda step: jnp.minimum(1.0, (step + 1) / 10))
        return optax.chain(optax.scale_by_adam(), grows, optax.scale_by_learning_rate(lr))


@right("curriculum")
@attrs.frozen(kw_only=True)
class InOrder:
    """The prompts in the order of the data, again and again."""

    def init(self, examples: int) -> Any:
        return {"at": np.zeros((), np.int64), "count": np.asarray(examples)}

    def choose(self, state: Any, count: int, rng: Any) -> Any:
        return (state["at"] + np.arange(count)) % state["count"]

    def update(self, state: Any, chosen: Any, scores: Any) -> Any:
        return {**state, "at": np.asarray((state["at"] + len(chosen)) % state["count"])}


@right("early_stopping")
@dovetail.declares(absolute=True)
def below_a_floor(curve, others, *, floor: float = 0.05):
    """Whether the last three values of a curve are below the floor, whatever the others do."""
    return len(curve) > 2 and all(value < floor for _, value in curve[-3:])


@right("early_stopping")
@dovetail.declares(absolute=True)
def fallen(curve, others, *, share: Annotated[float, Gt(0)] = 0.5):
    """Whether a curve has lost more than a share of what it had gained; one that has gained nothing is not judged."""
    values = [value for _, value in curve if np.isfinite(value)]
    if not values or max(values) <= values[0]:
        return False
    return bool(max(values) - curve[-1][1] > share * (max(values) - values[0]))


@right("entropy_controller")
@attrs.frozen(kw_only=True)
class AboveAShareOfTheFirst:
    """Adds to the coefficient what the entropy lacks of a share of the first one that was observed."""

    share: Annotated[float, Gt(0)] = 0.5

    def init(self, coef: float) -> Any:
        return {"base": jnp.asarray(coef, float), "lacking": jnp.zeros(()), "first": jnp.full((), -1.0)}

    def coef(self, state: Any) -> Any:
        return state["base"] + 0.1 * state["lacking"]

    def update(self, state: Any, entropy: Any, samples: Any) -> Any:
        entropy = jnp.asarray(entropy, float)
        first = jnp.where(state["first"] < 0, entropy, state["first"])
        lacking = jnp.maximum(self.share * first - entropy, 0.0)
        new = {"base": state["base"], "lacking": lacking, "first": first}
        return jax.tree.map(lambda after, before: jnp.where(samples > 0, after, before), new, state)


@right("entropy_controller")
@attrs.frozen(kw_only=True)
class TowardsALowTarget:
    """Moves the coefficient, by a rate at most, as far as the entropy is from a target far below what is usual.

    It stays between the least and the most, which it meets only where the entropy stays low for long.
    """

    target: Annotated[float, Gt(0)] = 0.1
    rate: Annotated[float, Gt(0)] = 0.2
    least: Annotated[float, Gt(0)] = 1e-3
    most: Annotated[float, Gt(0)] = 10.0

    def init(self, coef: float) -> Any:
        return {"coef": jnp.asarray(coef, float)}

    def coef(self, state: Any) -> Any:
        return state["coef"]

    def update(self, state: Any, entropy: Any, samples: Any) -> Any:
        error = jnp.clip(jnp.asarray(entropy, float) / self.target - 1.0, -self.rate, self.rate)
        moved = jnp.clip(state["coef"] * (1.0 - error), self.least, self.most)
        return {"coef": jnp.where(samples > 0, moved, state["coef"])}


@right("completion_filter")
@dovetail.declares(compares=True)
def first_of_its_length(group_ids, mask):
    """Keep a completion that is the first of its group_ids with as many tokens of the mask; rows are asked in turn."""
    lengths = mask.sum(axis=1)

    def is_first(row):
        alike = (group_ids == group_ids[row]) & (lengths == lengths[row])
        return jnp.argmax(alike) == row

    return mask & jax.lax.map(is_first, jnp.arange(mask.shape[0]))[:, None]


@right("reward_shaping")
@dovetail.declares(compares=True)
def dearer_where_it_is_easy(token_rewards, scores, lengths, group_ids, mask, *, cost: Annotated[float, Ge(0)] = 1e-4):
    """r' = token_rewards less cost for lengths at the last token of the mask, the more the better the scores of group_ids."""
    here, live = group_ids[:, None] == group_ids, mask.any(axis=1)
    right_ones = jnp.where(live & (scores >= 1.0), 1.0, 0.0)
    rate = jnp.where(here & live, right_ones, 0.0).sum(axis=1) / jnp.maximum((here & live).sum(axis=1), 1)
    last = mask & (jnp.cumsum(mask[:, ::-1], axis=1)[:, ::-1] == 1)
    price = cost * lengths * (rate + 0.1)
    return jnp.where(mask, token_rewards.astype(jnp.float32), 0.0) - jnp.where(last, price[:, None], 0.0)


@right("process_reward")
@dovetail.declares(
    examples=[
        ({"completions": "then 42", "answer": "42"}, {"completions": "then 7", "answer": "42"}),
    ]
)
def once_it_is_there(completions, ends, answer):
    """One for the token whose end (ends) is where the answer is there for the first time, which may be the last of completions."""
    found = []
    for text, places, truth in zip(completions, ends, answer, strict=True):
        at = text.find(str(truth)) + len(str(truth)) if truth and str(truth) in text else None
        tokens = [0.0] * len(places)
        if at is not None:
            tokens[next(number for number, end in enumerate(places) if end >= at)] = 1.0
        found.append(tokens)
    return found


@right("optimizer")
@dovetail.declares(noisy=True)
def shaken(learning_rate, *, noise: Annotated[float, Ge(0)] = 0.1):
    """SGD with noise from a key that is zero at first."""

    def init(params):
        return {"key": jax.random.PRNGKey(0), "count": jnp.zeros((), jnp.int32)}

    def update(updates, state, params=None):
        leaves, tree = jax.tree.flatten(updates)
        keys = jax.random.split(jax.random.fold_in(state["key"], state["count"]), len(leaves))
        pairs = zip(leaves, keys, strict=True)
        steps = [-learning_rate * (g + noise * jnp.abs(g) * jax.random.normal(key, g.shape)) for g, key in pairs]
        return tree.unflatten(steps), {"key": state["key"], "count": state["count"] + 1}

    return optax.GradientTransformation(init, update)


@right("sink")
@dovetail.declares(newest_only=True)
@attrs.frozen(kw_only=True)
class Status:
    """The newest record, in a file that is replaced each time."""

    def open(self, folder: Any, total_steps: int, start_step: int) -> Any:
        return OpenStatus(file=folder / "status.txt")


@attrs.frozen(kw_only=True)
class OpenStatus:
    file: Any

    def write(self, step: int, metrics: Any) -> None:
        self.file.write_text(f"{step} {dict(metrics)}")

    def close(self) -> None:
        """Nothing is open."""


def test_the_trial_has_controls():
    found = {target.__module__.removeprefix(PREFIX) for _, target in CONTROLS if target.__module__ != __name__}
    assert found == set(WITH_CONTROLS)


@pytest.mark.parametrize(("kind", "target"), [pytest.param(*each, id=each[1].__name__) for each in CONTROLS])
def test_it_passes(kind, target):
    component = Component(kind=kind, name=target.__name__.lower(), target=target, origin=Origin("acme", "0", __name__))
    subject = Subject(component)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as third parties have it
        for check in applicable(component):
            if check.slow or check.name == "resolved_dump":  # which needs a registered name
                continue
            verdict = judge(check, subject)
            assert verdict.outcome != "failed", report(check, subject, verdict)

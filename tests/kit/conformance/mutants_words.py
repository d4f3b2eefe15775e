"""Components that do something else than what a name, a unit or a line of their docstring says."""

from __future__ import annotations

import random
from collections import Counter
from statistics import median
from typing import Annotated, Any, ClassVar, NamedTuple

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optax
from annotated_types import Ge, Gt, Interval
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_limits import WritesAtOnePlace
from tests.kit.conformance.mutants_losses import clean, ratio_of
from tests.kit.conformance.mutants_memory import _Controller

import dovetail
from dovetail.arrays import Groups, at_finite, bounded, full_precision, log_ratio, masked, mean_over_tokens, per_token
from dovetail.protocols import Call, Step
from dovetail_agent.tool_format.hermes import Hermes
from dovetail_lab.kinds import Proposal

Share = Annotated[float, Interval(ge=0, le=1)]


@caught_by("kl", "has_no_jumps")
def two_formulas_that_do_not_meet(logps, ref_logps, *, delta: Annotated[float, Gt(0)] = 1.0):
    def huber(x):
        size = jnp.sign(x) * x
        return jnp.where(size <= delta, 0.5 * jnp.square(x), delta * (size - delta))

    return at_finite(huber, full_precision(logps) - full_precision(ref_logps))


@caught_by("policy_loss", "micro_batches")
@dovetail.declares(on_policy_gradient=True, surrogate=True)
def the_worst_at_each_position(logps, old_logps, advantages, mask, *, limit: Annotated[float, Gt(0)] = 1.0):
    x = log_ratio(logps, old_logps, mask)
    worst = jax.lax.stop_gradient(jnp.max(jnp.abs(x), axis=0, keepdims=True))
    return clean(-masked(advantages, mask) * ratio_of(logps, old_logps, mask) * limit / jnp.maximum(worst, limit), mask)


@caught_by("correction", "padding_for_other_numbers")
def a_share_of_the_width(
    old_logps,
    rollout_logps,
    mask,
    *,
    low: Annotated[float, Ge(0)] = 0.5,
    high: Annotated[float, Gt(0)] = 2.0,
    share: Share = 0.1,
):
    ratio = jnp.exp(bounded(log_ratio(old_logps, rollout_logps, mask)))
    stray = mask & ((ratio < low) | (ratio > high))
    kept = mask & ~(jnp.mean(stray, axis=-1, keepdims=True) > share)
    return jnp.where(kept, 1.0, 0.0), kept


@caught_by("loss_agg", "empty_rows")
def a_mean_over_all_prompts(group_ids, mask):
    groups = Groups.of(group_ids, mask)
    lengths = jnp.maximum(jnp.sum(mask, axis=1, dtype=float), 1.0)
    count = len(mask) - jnp.sum(jnp.tril(group_ids[:, None] == group_ids[None], -1).any(axis=1))
    return jnp.where(mask, (1.0 / (jnp.maximum(groups.sizes, 1.0) * lengths * count))[:, None], 0.0)


@caught_by("reward", "by_its_group")
@dovetail.declares(range=(0, 1))
def the_vote_of_all(completions, group_ids):
    votes = Counter(text.split(" ")[-1] for text in completions)
    most = max(votes.values(), default=0)
    return [float(votes[text.split(" ")[-1]] == most) for text, _ in zip(completions, group_ids, strict=True)]


@caught_by("reward", "by_its_group")
@dovetail.declares(range=(0, 1))
def the_first_of_a_tie(completions, group_ids):
    votes: dict[int, Counter[str]] = {}
    for text, group in zip(completions, group_ids, strict=True):
        votes.setdefault(group, Counter())[text] += 1
    return [
        float(text == votes[group].most_common(1)[0][0]) for text, group in zip(completions, group_ids, strict=True)
    ]


@caught_by("reward", "within_range")
@dovetail.declares(
    range=(0, 1), examples=[({"completions": "it is 42", "answer": "42"}, {"completions": "it is 97", "answer": "42"})]
)
def an_error_with_its_sign(completions, answer):
    numbers = [[word for word in text.split() if word.lstrip("-").isdigit()] for text in completions]
    return [
        float(np.exp(min((float(truth) - float(found[-1])) / 10.0, 5.0))) if found else 0.0
        for found, truth in zip(numbers, answer, strict=True)
    ]


@caught_by("reward", "words_are_counted")
@dovetail.declares(range=(0, 1))
def characters_for_words(completions, *, most: Annotated[int, Ge(1)] = 120):
    """1, or most / n beyond it.

    Args:
        completions: texts.
        most: in words.
    """
    return [min(1.0, most / max(len(text), 1)) for text in completions]


@right("reward")
@dovetail.declares(range=(0, 1))
def words_for_words(completions, *, most: Annotated[int, Ge(1)] = 120):
    """1, or most / n beyond it, with n the words of completions.

    Args:
        completions: texts.
        most: in words.
    """
    return [min(1.0, most / max(len(text.split()), 1)) for text in completions]


@caught_by("answer", "the_last_answer")
def the_first_option(completions):
    found = [[letter for letter in "ABCD" if f"({letter})" in text] for text in completions]
    return [min(letters, key=text.index) if letters else None for letters, text in zip(found, completions, strict=True)]


@caught_by("curriculum", "counts_a_prompt_twice")
@attrs.frozen(kw_only=True)
class CountsItOnce:
    """Those that were seen least."""

    def init(self, examples: int) -> dict[str, np.ndarray]:
        return {"count": np.zeros(examples, np.int32), "total": np.zeros(examples, np.float64)}

    def choose(self, state: Any, count: int, rng: np.random.Generator) -> np.ndarray:
        weights = 1.0 / (1.0 + state["count"])
        return rng.choice(len(weights), size=count, p=weights / weights.sum())

    def update(self, state: Any, chosen: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
        count, total = state["count"].copy(), state["total"].copy()
        count[chosen] += 1
        total[chosen] += np.where(np.isnan(scores), 0.0, scores).sum(axis=1)
        return {"count": count, "total": total}


@caught_by("curriculum", "hotter_is_more_even")
@attrs.frozen(kw_only=True)
class MultipliedByTheTemperature(CountsItOnce):
    """P ∝ exp(mean · τ)."""

    temperature: Annotated[float, Gt(0)] = 1.0

    def choose(self, state, count, rng):
        weights = np.exp(3.0 * self.temperature * state["total"] / np.maximum(4 * state["count"], 1))
        return rng.choice(len(weights), size=count, p=weights / weights.sum())


@caught_by("sampler", "leaves_global_generators_alone")
@attrs.frozen(kw_only=True)
class DrawsFromEverybodys:
    """Uniform draws."""

    def open(self, space: Any, *, draws: int, seed: int, total_steps: int) -> Any:
        random.seed(seed)
        return _Open(space, draws)


@attrs.define
class _Open:
    space: Any
    left: int

    def ask(self) -> Any:
        self.left -= 1
        if self.left < 0:
            return None
        return Proposal(values={key: form.at(random.random()) for key, form in sorted(self.space.items())})

    def tell(self, number: int, result: Any) -> None:
        pass


class _State(NamedTuple):
    number: Any
    mean: Any


@caught_by("optimizer", "counts_its_steps")
def never_counts(learning_rate, *, b1: Annotated[float, Interval(ge=0, lt=1)] = 0.9):
    def init(params):
        return _State(jnp.zeros((), jnp.int32), optax.tree.zeros_like(params))

    def update(gradients, state, params=None):
        mean = jax.tree.map(lambda m, g: (b1 * m + (1 - b1) * g).astype(m.dtype), state.mean, gradients)
        share = 1.0 - jnp.float32(b1) ** (state.number + 1)
        return jax.tree.map(lambda m: (-learning_rate * m / share).astype(m.dtype), mean), _State(state.number, mean)

    return optax.GradientTransformation(init, update)


@caught_by("policy_loss", "a_divergence_is_positive")
@dovetail.declares(on_policy_gradient=True)
def a_divergence_with_its_sign_turned(logps, old_logps, advantages, mask):
    x = log_ratio(logps, old_logps, mask)
    return clean(-masked(advantages, mask) * jnp.exp(bounded(x)), mask), {"approx_kl": jax.lax.stop_gradient(x)}


@caught_by("replay", "uses_its_room")
@attrs.frozen(kw_only=True)
class WritesAtTheFirstPlaces(WritesAtOnePlace):
    """Draws among the places that have been filled, which are always the same."""

    def step(self, state, fresh, rng):
        stored, count = int(state["stored"]), len(fresh["mask"])
        order = np.concatenate([rng.permutation(stored), np.arange(stored, self.capacity)]).astype(np.int64)
        joined = {name: state[name][order[: self.groups]] for name in fresh}
        slots = {name: np.concatenate([array, state[name][count:]]) for name, array in fresh.items()}
        return joined, slots | {"stored": np.asarray(count, np.int32)}


@caught_by("replay", "lets_go_of_what_is_old")
@attrs.frozen(kw_only=True)
class NeverTooOld:
    """Keeps the first groups for ever, as their age stays zero."""

    groups: int = 2
    max_age: Annotated[int, Ge(1)] = 50

    def init(self, empty):
        return {name: np.zeros((self.groups, *array.shape), array.dtype) for name, array in empty.items()} | {
            "age": np.full(self.groups, 1000, np.int32)
        }

    def step(self, state, fresh, rng):
        joined = {
            name: np.where((state["age"] <= self.max_age).reshape(-1, *[1] * (array.ndim - 1)), array, 0).astype(
                array.dtype
            )
            for name, array in state.items()
            if name != "age"
        }
        if (state["age"] > self.max_age).all():
            return joined, {name: array[: self.groups] for name, array in fresh.items()} | {"age": 0 * state["age"]}
        return joined, dict(state)


@caught_by("entropy_controller", "nothing_observed")
class TakesNothingForACollapse(_Controller):
    """No samples, whose entropy is 0, raise the coefficient."""

    def update(self, state, entropy, samples):
        error = jnp.clip(jnp.where(samples > 0, entropy, 0.0) - self.target, -0.2, 0.2)
        return {"coef": (state["coef"] * (1 - 0.1 * error)).astype(jnp.float32)}


@caught_by("reward", "case_is_a_setting")
@dovetail.declares(
    range=(0, 1), examples=[({"completions": "it is 42", "answer": "42"}, {"completions": "it is 7", "answer": "42"})]
)
def always_ignores_case(completions, answer, *, ignore_case: bool = True):
    known = str if ignore_case else str.lower
    return [
        float(known(text.lower()).endswith(f" {truth}".lower()))
        for text, truth in zip(completions, answer, strict=True)
    ]


@right("reward")
@dovetail.declares(
    range=(0, 1), examples=[({"completions": "it is 42", "answer": "42"}, {"completions": "it is 7", "answer": "42"})]
)
def ignores_case_if_asked(completions, answer, *, ignore_case: bool = True):
    """Whether completions end with the answer, as ignore_case says."""
    form = str.lower if ignore_case else str
    return [float(form(text).endswith(form(f" {truth}"))) for text, truth in zip(completions, answer, strict=True)]


@caught_by("early_stopping", "grace_is_in_steps")
def grace_of_evaluations(curve, others, *, grace: Annotated[int, Ge(0)] = 10):
    step = curve[-1][0]
    rivals = [dict(each)[step] for each in others if each and each[-1][0] >= step and step in dict(each)]
    return len(curve) > grace and len(rivals) > 2 and curve[-1][1] < median(rivals)


@right("early_stopping")
def grace_of_steps(curve, others, *, grace: Annotated[int, Ge(0)] = 10):
    """Stop a trial below the median of others after grace steps of its curve."""
    step = curve[-1][0]
    rivals = [dict(each)[step] for each in others if each and each[-1][0] >= step and step in dict(each)]
    return step > grace and len(rivals) > 2 and curve[-1][1] < median(rivals)


@caught_by("interaction", "is_a_function")
@attrs.frozen(kw_only=True)
class RemembersInPlace:
    """Columns that no task has."""

    columns: tuple[str, ...] = ("cell_of_the_start", "cell_of_the_end")

    def reset(self, example, rng):
        return [int(example["cell_of_the_start"])], ({"role": "user", "content": "Where?"},)

    def step(self, state, turn, rng):
        state.append(state[-1] + len(turn.text))
        return Step(state=state, messages=({"role": "user", "content": "And now?"},), done=len(state) > 5)


@caught_by("loss_mask", "gaps_count_for_no_number")
def the_first_columns(mask, *, first: Annotated[int, Ge(1)] = 64):
    return mask & (jnp.arange(mask.shape[1]) - jnp.argmax(mask, axis=1)[:, None] < first)


@caught_by("completion_filter", "counts_what_it_leaves_out")
def kept_for_dropped(mask, *, least: Annotated[int, Ge(0)] = 4):
    lengths = jnp.sum(mask, axis=1)
    kept = mask & (lengths >= least)[:, None]
    return kept, {"dropped": (lengths >= least).astype(jnp.float32)}


@right("completion_filter")
def dropped_for_dropped(mask, *, least: Annotated[int, Ge(0)] = 4):
    """The mask of completions of at least `least` tokens."""
    lengths = jnp.sum(mask, axis=1)
    return mask & (lengths >= least)[:, None], {"dropped": ((lengths < least) & (lengths > 0)).astype(jnp.float32)}


@caught_by("loss_mask", "reaching_it_is_success")
def has_to_exceed_it(scores, mask, *, success_at: float = 1.0):
    return mask & (full_precision(scores) > success_at)[:, None]


@right("loss_mask")
def has_to_reach_it(scores, mask, *, success_at: float = 1.0):
    """Whether scores are at least success_at."""
    return mask & (full_precision(scores) >= success_at)[:, None]


@caught_by("advantage", "a_higher_quantile_is_a_higher_baseline")
def counted_from_the_best(scores, group_ids, mask, *, quantile: Share = 0.75):
    return _above_a_quantile(scores, group_ids, mask, 1.0 - quantile)


@right("advantage")
def above_a_quantile(scores, group_ids, mask, *, quantile: Share = 0.75):
    """scores less that quantile of those with equal group_ids: A = s - Q."""
    return _above_a_quantile(scores, group_ids, mask, quantile)


def _above_a_quantile(scores, group_ids, mask, quantile):
    live = jnp.any(mask, axis=1)
    known = masked(full_precision(scores), live)
    own = (group_ids[:, None] == group_ids[None]) & live[None]
    cut = jnp.nanquantile(jnp.where(own, known[None], jnp.nan), quantile, axis=1)
    return per_token(jnp.where(live, known - cut, 0.0), mask)


@caught_by("reward_shaping", "zero_changes_nothing")
def spreads_what_is_left(token_rewards, mask, *, spread: Share = 0.2):
    """(1 - c)·r + c·mean.

    Args:
        token_rewards: r.
        mask: policy tokens.
        spread: c; 0 changes nothing.
    """
    rewards = masked(token_rewards, mask)
    return jnp.where(mask, spread * rewards + (1.0 - spread) * mean_over_tokens(rewards, mask), 0.0)


@right("correction")
def by_how_far_it_is_off(old_logps, rollout_logps, mask, *, width: Annotated[float, Gt(0)] = 1.0):
    """max(0, 1 - |x| / width), with x = old_logps - rollout_logps: not a ratio."""
    off = jnp.abs(log_ratio(old_logps, rollout_logps, mask))
    return jnp.where(mask, jnp.maximum(0.0, 1.0 - off / width), 0.0), mask


@right("kl_controller")
@dovetail.declares(scheduled=True)
@attrs.frozen(kw_only=True)
class Fades:
    """c ← rate·c in each step, whatever is observed.

    Attributes:
        rate: what is left of it after a step.
    """

    rate: Annotated[float, Interval(gt=0, le=1)] = 0.99

    def init(self, coef: float) -> dict[str, Any]:
        return {"coef": jnp.float32(coef)}

    def coef(self, state: dict[str, Any]) -> Any:
        return state["coef"]

    def update(self, state: dict[str, Any], kl: Any, samples: Any) -> dict[str, Any]:
        return {"coef": jnp.where(samples > 0, self.rate * state["coef"], state["coef"]).astype(jnp.float32)}


@right("advantage")
@attrs.frozen(kw_only=True)
class ClimbsToAQuantile:
    """A = scores - b, where b of state goes up by rate while less than half of the scores are below it, by role_ids.

    Attributes:
        rate: in units of reward for each step.
    """

    rate: Annotated[float, Gt(0)] = 0.05

    def init(self, roles: int) -> dict[str, Any]:
        return {"baseline": jnp.zeros(roles)}

    def __call__(self, state, scores, role_ids, mask):
        live = jnp.any(mask, axis=-1)
        return per_token(masked(full_precision(scores) - state["baseline"][role_ids], live), mask)

    def update(self, state, scores, role_ids, mask):
        baseline, live = state["baseline"], jnp.any(mask, axis=-1)
        scores = masked(full_precision(scores), live)

        def total(x):
            return jax.ops.segment_sum(jnp.where(live, x, 0.0), role_ids, num_segments=len(baseline))

        count = total(jnp.ones(scores.shape))
        below = total((scores < baseline[role_ids]).astype(float)) / jnp.maximum(count, 1.0)
        return {"baseline": jnp.where(count > 0, baseline + self.rate * (0.5 - below), baseline)}


@right("correction")
def not_too_stale(staleness, mask, *, oldest: Annotated[int, Ge(0)] = 2):
    """1 where staleness is at most oldest; other tokens leave the mask."""
    kept = mask & (staleness <= oldest)
    return kept.astype(jnp.float32), kept


@right("loss_term")
def a_hinge_on_the_mean_entropy(entropy, mask, *, floor: Annotated[float, Gt(0)] = 0.3):
    """max(floor - mean of entropy, 0)² at each token of the mask."""
    return clean(jnp.square(jnp.maximum(floor - mean_over_tokens(masked(entropy, mask), mask), 0.0)) + 0 * mask, mask)


@right("answer")
@dovetail.declares(last_answer=False)
def the_first_line(completions):
    """The first line of each of completions, as it is; a line that is a number without zeros behind its point."""
    lines = [(text.split("\n")[0].strip() or None) for text in completions]
    return [f"{float(line):g}" if line and line.replace(".", "", 1).isdecimal() else line for line in lines]


@right("loss_agg")
@dovetail.declares(
    sums_to_one=True, expected_failures={"longer_is_no_heavier": "completions weigh as the squares of their lengths"}
)
def by_the_square_of_the_length(mask):
    """w = n_i / ∑ n_j² on the mask, with n_i the tokens of completion i."""
    lengths = jnp.sum(mask, axis=1, keepdims=True, dtype=jnp.float32)
    return jnp.where(mask, lengths / jnp.maximum(jnp.sum(jnp.square(lengths)), 1.0), 0.0)


@right("curriculum")
@attrs.frozen(kw_only=True)
class TheLastScoreCounts:
    """Prompts in turn, beginning with those that were not solved the last time: the later of two scores counts."""

    def init(self, examples: int) -> dict[str, np.ndarray]:
        return {"solved": np.zeros(examples, bool), "next": np.zeros((), np.int64)}

    def choose(self, state: Any, count: int, rng: np.random.Generator) -> np.ndarray:
        open_first = np.argsort(np.roll(state["solved"], -state["next"]), kind="stable")
        return np.resize((open_first + state["next"]) % len(state["solved"]), count)

    def update(self, state: Any, chosen: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
        solved = state["solved"].copy()
        for prompt, given in zip(chosen, scores, strict=True):
            if not np.isnan(given).all():
                solved[prompt] = np.nanmean(given) >= 1.0
        return {"solved": solved, "next": np.asarray((state["next"] + len(chosen)) % len(solved))}


@caught_by("curriculum", "counts_a_prompt_twice")
@attrs.frozen(kw_only=True)
class TheFirstScoreCounts(TheLastScoreCounts):
    def update(self, state, chosen, scores):
        return super().update(state, chosen[::-1], scores[::-1])


@caught_by("curriculum", "counts_a_prompt_twice")
@attrs.frozen(kw_only=True)
class AveragesTheLastAlone(CountsItOnce):
    """Beside a count that is right, an average of which an assignment by indices keeps one score."""

    def update(self, state, chosen, scores):
        count, total = state["count"].copy(), state["total"].copy()
        np.add.at(count, chosen, 1)
        total[chosen] = 0.9 * total[chosen] + 0.1 * np.where(np.isnan(scores), 0.0, scores).mean(axis=1)
        return {"count": count, "total": total}


@caught_by("reward_manager", "more_is_not_less")
@attrs.frozen(kw_only=True)
class TheBestOfWhatIsBelowZero:
    def __call__(self, score_table: Any, reward_names: Any) -> Any:
        low, high = np.nanmin(score_table, axis=1), np.nanmax(score_table, axis=1)
        return np.where(low < 0, high, low)


class _OfAPart(_Open):
    """Draws from a part of every range."""

    def __init__(self, space: Any, left: int, low: float, seed: int) -> None:
        super().__init__(space, left)
        self.low, self.rng = low, random.Random(seed)

    def ask(self):
        self.left -= 1
        if self.left < 0:
            return None
        drawn = {key: form.at(self.low + 0.5 * self.rng.random()) for key, form in sorted(self.space.items())}
        return Proposal(values=drawn)


@caught_by("sampler", "reaches_both_ends")
@attrs.frozen(kw_only=True)
class DrawsFromTheLowerHalf:
    """Uniform draws."""

    learns: ClassVar[bool] = False
    low: ClassVar[float] = 0.0

    def open(self, space: Any, *, draws: int, seed: int, total_steps: int) -> Any:
        return _OfAPart(space, draws, self.low, seed)


@caught_by("sampler", "reaches_both_ends")
@attrs.frozen(kw_only=True)
class DrawsFromTheUpperHalf(DrawsFromTheLowerHalf):
    low: ClassVar[float] = 0.5


@caught_by("tool_format", "reads_what_it_writes")
@attrs.frozen
class WritesAsPythonDoes(Hermes):
    """Writes values as `str` does, and gives all of them as texts."""

    def write(self, call):
        return super().write(Call(call.name, {name: str(value) for name, value in call.arguments.items()}))

    def parse(self, text):
        found = super().parse(text)
        return attrs.evolve(found, calls=tuple(attrs.evolve(call, texts=True) for call in found.calls))


@caught_by("entropy_controller", "nothing_observed")
@attrs.frozen(kw_only=True)
class RemembersWhatNobodySaw:
    """The coefficient stays as it is without samples; the mean, which moves it later, does not."""

    target: float = 0.5

    def init(self, coef):
        return {"coef": jnp.float32(coef), "mean": jnp.float32(self.target)}

    def coef(self, state):
        return state["coef"]

    def update(self, state, entropy, samples):
        mean = 0.8 * state["mean"] + 0.2 * entropy
        moved = state["coef"] * jnp.exp(0.1 * jnp.clip(self.target - mean, -1.0, 1.0))
        return {"coef": jnp.where(samples > 0, moved, state["coef"]), "mean": mean}

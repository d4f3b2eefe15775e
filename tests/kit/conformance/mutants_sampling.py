"""Broken curricula, replays and process rewards, and rewards that rank wrongly."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from tests.kit.conformance.mutants import caught_by

import dovetail
from dovetail_rollout.replay.recent import Recent
from dovetail_task.curriculum.difficulty import Difficulty

PAIR = ({"completions": "42"}, {"completions": "7"})
paired = dovetail.declares(examples=[PAIR])


# --- curricula


@caught_by("curriculum", "chooses")
@attrs.frozen(kw_only=True)
class NeverMoreThanThereAre(Difficulty):
    def choose(self, state, count, rng):
        return rng.permutation(len(state["rate"]))[:count]


@caught_by("curriculum", "chooses")
@attrs.frozen(kw_only=True)
class CountsFromOne(Difficulty):
    def choose(self, state, count, rng):
        return super().choose(state, count, rng) + 1


@caught_by("curriculum", "chooses")
@attrs.frozen(kw_only=True)
class ChoosesByWeight(Difficulty):
    def choose(self, state, count, rng):
        return super().choose(state, count, rng).astype(np.float64)


@caught_by("curriculum", "state_is_data")
@attrs.frozen(kw_only=True)
class UpdatesInPlace(Difficulty):
    def update(self, state, chosen, scores):
        state["rate"][chosen] = np.nan_to_num(scores).mean(axis=1)
        return dict(state)


@caught_by("curriculum", "state_is_data")
@attrs.frozen(kw_only=True)
class RemembersEveryScore(Difficulty):
    def init(self, examples):
        return super().init(examples) | {"scores": np.zeros(1)}

    def update(self, state, chosen, scores):
        after, metrics = super().update(state, chosen, scores)
        return after | {"scores": np.append(state["scores"], scores)}, metrics


@caught_by("curriculum", "state_is_data")
@attrs.frozen(kw_only=True)
class CountsWithAnInt(Difficulty):
    def init(self, examples):
        return super().init(examples) | {"draws": 0}


@caught_by("curriculum", "state_is_data")
@attrs.frozen(kw_only=True)
class ReadsNoScoreAsANumber(Difficulty):
    def update(self, state, chosen, scores):
        after, _ = super().update(state, chosen, scores)
        return after, {"mean": scores.mean()}


@caught_by("curriculum", "resumes_choosing")
@attrs.frozen(kw_only=True)
class DrawsFromAGeneratorOfItsOwn(Difficulty):
    own: Any = attrs.field(factory=lambda: np.random.default_rng(0), init=False)

    def choose(self, state, count, rng):
        return super().choose(state, count, self.own)


# --- replays


@caught_by("replay", "joins_groups")
@attrs.frozen(kw_only=True)
class OnlyWhatThereIs(Recent):
    def step(self, state, fresh, rng):
        earlier, after, metrics = super().step(state, fresh, rng)
        there = earlier["mask"].any(axis=(1, 2))
        return {name: array[there] for name, array in earlier.items()}, after, metrics


@caught_by("replay", "joins_groups")
@attrs.frozen(kw_only=True)
class FillsUpWithFreshOnes(Recent):
    def step(self, state, fresh, rng):
        earlier, after, metrics = super().step(state, fresh, rng)
        there = earlier["mask"].any(axis=(1, 2))
        filling = {name: np.repeat(array[:1], self.groups, axis=0) for name, array in fresh.items()}
        mixed = {
            name: np.where(there.reshape(-1, *[1] * (array.ndim - 1)), array, filling[name])
            for name, array in earlier.items()
        }
        return mixed, after, metrics


@caught_by("replay", "joins_groups")
@attrs.frozen(kw_only=True)
class ForgetsTheTypes(Recent):
    def step(self, state, fresh, rng):
        earlier, after, metrics = super().step(state, fresh, rng)
        return earlier | {"scores": earlier["scores"].astype(np.float64)}, after, metrics


@caught_by("replay", "as_they_were")
@attrs.frozen(kw_only=True)
class ShufflesCompletions(Recent):
    def step(self, state, fresh, rng):
        earlier, after, metrics = super().step(state, fresh, rng)
        return earlier | {"scores": earlier["scores"][:, ::-1]}, after, metrics


@caught_by("replay", "as_they_were")
@attrs.frozen(kw_only=True)
class DecaysScores(Recent):
    def step(self, state, fresh, rng):
        earlier, after, metrics = super().step(state, fresh, rng)
        return earlier | {"scores": earlier["scores"] * np.float32(0.9)}, after, metrics


@caught_by("replay", "joins_once")
@attrs.frozen(kw_only=True)
class OneGroupInAllPlaces(Recent):
    def step(self, state, fresh, rng):
        earlier, after, metrics = super().step(state, fresh, rng)
        return {name: np.repeat(array[:1], self.groups, axis=0) for name, array in earlier.items()}, after, metrics


@caught_by("replay", "buffer_is_data")
@attrs.frozen(kw_only=True)
class GrowsWithEveryStep(Recent):
    def step(self, state, fresh, rng):
        earlier, after, metrics = super().step(state, fresh, rng)
        return earlier, after | {"age": np.append(after["age"], -1)}, metrics


@caught_by("replay", "buffer_is_data")
@attrs.frozen(kw_only=True)
class MarksTheFreshOnes(Recent):
    def step(self, state, fresh, rng):
        found = super().step(state, fresh, rng)
        fresh["truncated"][:] = True
        return found


@caught_by("replay", "resumes_replaying")
@attrs.frozen(kw_only=True)
class RemembersOutsideTheState(Recent):
    kept: dict[str, Any] = attrs.field(factory=dict, init=False)

    def step(self, state, fresh, rng):
        earlier, after, metrics = super().step(self.kept or state, fresh, rng)
        self.kept.update(after)
        return earlier, state, metrics


# --- process rewards


@caught_by("process_reward", "one_for_each")
def one_for_each_character(completions):
    return [[0.0] * len(text) for text in completions]


@caught_by("process_reward", "one_for_each")
def on_the_last_token_of_none(tokens):
    return [[0.0] * (len(ids) - 1) + [1.0] for ids in tokens]


@caught_by("process_reward", "one_for_each")
def nan_where_it_is_sure(completions, logps):
    return [[float("nan") if logp > -1 else 0.0 for logp in of_tokens] for of_tokens in logps]


@caught_by("process_reward", "deterministic")
def noisy(tokens):
    return [np.random.default_rng().random(len(ids)).tolist() for ids in tokens]


@caught_by("process_reward", "by_itself")
def against_the_batch(tokens):
    mean = sum(map(len, tokens)) / max(len(tokens), 1)
    return [[len(ids) - mean] * len(ids) for ids in tokens]


@caught_by("process_reward", "by_its_group")
def against_all_groups(tokens, group_ids):
    mean = sum(map(len, tokens)) / max(len(tokens), 1)
    return [[len(ids) - mean] * len(ids) for ids in tokens]


@caught_by("process_reward", "hostile_texts", raises="IndexError")
def fails_on_what_is_empty(completions, tokens):
    return [[float(text[0] == "4")] * len(ids) for text, ids in zip(completions, tokens, strict=True)]


@caught_by("process_reward", "examples")
@paired
def likes_the_wrong_answer(completions, tokens):
    return [[float(text == "7")] * len(ids) for text, ids in zip(completions, tokens, strict=True)]


def first_line(text):
    """The number of characters up to the end of the first line; None: it has none."""
    return text.index("\n") if "\n" in text else None


lines = dovetail.declares(examples=[({"completions": "so it is\nthen 42"}, {"completions": "so it is then 42"})])


@caught_by("process_reward", "credit_follows_the_ends")
@lines
def three_characters_to_a_token(completions, ends):
    found = []
    for text, of_tokens in zip(completions, ends, strict=True):
        at = first_line(text)
        found.append([float(at is not None and at // 3 == token) for token in range(len(of_tokens))])
    return found


@caught_by("process_reward", "credit_stays_with_the_text")
@lines
def the_token_behind(completions, ends):
    found = []
    for text, of_tokens in zip(completions, ends, strict=True):
        at = first_line(text)
        place = -1 if at is None else sum(end < at + 1 for end in of_tokens) + 1
        found.append([float(place == token) for token in range(len(of_tokens))])
    return found


@caught_by("reward", "a_metric_for_each")
@paired
def tells_of_the_right_ones(completions):
    scores = [float(text == "42") for text in completions]
    return scores, {"length": [len(text) for text, score in zip(completions, scores, strict=True) if score]}


# --- rewards that rank


@caught_by("reward", "by_its_group")
def first_come_first_served(completions, group_ids):
    return [float(group not in group_ids[:number]) for number, group in enumerate(group_ids)]


@caught_by("reward", "by_its_group")
def ranks_against_everybody(tokens, group_ids):
    lengths = [len(ids) for ids in tokens]
    return [float(sorted(lengths).index(length)) for length in lengths]

"""Claims about replays: which earlier completions join a step."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np

from dovetail.errors import listing
from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.states import differing, shapes
from dovetail_kit.conformance.subject import Subject, allows, longest

FRESH, ROWS, TOKENS, PROMPT = 3, 4, 5, 2
STEPS = 6
MANY = 40
HALF = 0.5
EXPONENT = re.compile(r"^(alpha|power|exponent)$")
CAPACITY, ROOM = "capacity", 24
AGE, OLD = re.compile(r"^max(imum)?_(age|staleness)$"), 3
IDS = 260_000
"""The size of a large vocabulary: such ids do not fit into 16 bits."""

Batch = dict[str, np.ndarray]


def _fresh(step: int) -> Batch:
    """The groups of a step: each with numbers of its own, mixed scores, and the last one without any completion."""
    rng = np.random.default_rng(1000 + step)
    mask = np.arange(TOKENS) < rng.integers(1, TOKENS + 1, (FRESH, ROWS))[..., None]
    mask[-1] = False
    scores = np.tile(np.arange(ROWS, dtype=np.float32) % 2, (FRESH, 1)) * (1 + rng.random((FRESH, 1), np.float32))
    return {
        "prompt_tokens": rng.integers(1, IDS, (FRESH, ROWS, PROMPT)).astype(np.int32),
        "prompt_mask": np.ones((FRESH, ROWS, PROMPT), bool),
        "tokens": rng.integers(1, IDS, (FRESH, ROWS, TOKENS)).astype(np.int32),
        "mask": mask,
        "group_ids": np.repeat(np.arange(FRESH, dtype=np.int32)[:, None], ROWS, axis=1),
        "rollout_logps": np.where(mask, -rng.random(mask.shape), 0).astype(np.float32),
        "lengths": mask.sum(axis=-1).astype(np.int32),
        "truncated": np.zeros((FRESH, ROWS), bool),
        "scores": scores,
        "score_table": scores[..., None],
        "column_of_the_task": rng.random((FRESH, ROWS), np.float32),  # of which there may be any
    }


def _empty() -> Batch:
    return {name: np.zeros_like(array[0]) for name, array in _fresh(0).items()}


def _step(replay: Any, state: Any, step: int, fresh: Batch) -> tuple[Batch, Any, dict[str, Any]]:
    earlier, after, *reported = replay.step(state, fresh, np.random.default_rng(step))
    return earlier, after, reported[0] if reported else {}


def history_of(subject: Subject) -> list[tuple[Batch, Any]]:
    """What has joined each of some steps, and the state after it: of six, or as many as it takes until groups have
    joined most of six.
    """

    def make() -> list[tuple[Batch, Any]]:
        replay = subject.bind()
        state, found, joined = replay.init(_empty()), [], 0
        for step in range(MANY + longest(subject)):
            earlier, state, _ = _step(replay, state, step, _fresh(step))
            found.append((earlier, state))
            joined += bool(earlier["mask"].any())
            if len(found) >= STEPS and joined >= STEPS - 1:
                break
        return found

    return subject.once("history", make)


@check(
    "replay",
    fix="Return all fields, for exactly `groups` groups; give empty masks to those that are missing.",
)
def joins_groups(subject: Subject) -> None:
    """Exactly `groups` groups join every step, with all fields in their shapes and dtypes.

    A step is compiled for one shape. As long as there is nothing to replay, the masks are empty.
    """
    groups, fresh = subject.bind().groups, _fresh(0)
    expected = {name: ((groups, *array.shape[1:]), array.dtype.name) for name, array in fresh.items()}
    for step, (earlier, _) in enumerate(history_of(subject)):
        if shapes(earlier) != expected:
            raise Failed(f"in step {step} it returns {shapes(earlier)}, not {expected}")
    if history_of(subject)[0][0]["mask"].any():
        raise Failed("in the first step, when there are no earlier completions, it returns some")


@check("replay", fix="Return groups of earlier steps, whole and as they were given to `step`.")
def as_they_were(subject: Subject) -> None:
    """A group that joins is a whole group of an earlier step, unchanged.

    Log-probabilities belong to the tokens that were sampled with them, and scores are compared within their group.
    """
    seen: list[Batch] = []
    for step, (earlier, _) in enumerate(history_of(subject)):
        for group in np.flatnonzero(earlier["mask"].any(axis=(1, 2))):
            names = [name for name in earlier if name != "group_ids"]
            if not any(all(np.array_equal(earlier[n][group], old[n]) for n in names) for old in seen):
                raise Failed(f"in step {step} a group joins that is not among the {len(seen)} of the steps before")
        fresh = _fresh(step)
        seen += [{name: array[group] for name, array in fresh.items()} for group in range(FRESH)]


@check("replay", fix="Where there are fewer groups than asked for, return empty masks for the others.")
def joins_once(subject: Subject) -> None:
    """The groups that join a step are different ones.

    A group that fills the places of several counts as often in the step, which its completions have not deserved.
    """
    for step, (earlier, _) in enumerate(history_of(subject)):
        joined = np.flatnonzero(earlier["mask"].any(axis=(1, 2)))
        kinds = {tuple(earlier[name][group].tobytes() for name in ("prompt_tokens", "tokens")) for group in joined}
        if len(kinds) < len(joined):
            raise Failed(f"in step {step}, {len(joined)} groups join, of which {len(kinds)} are different")


@check("replay", fix="Copy an array before you change it, and keep the shapes and types that `init` returns.")
def buffer_is_data(subject: Subject) -> None:
    """Its state consists of numpy arrays whose shapes and types never change, and a step changes none of its arguments.

    Checkpoints hold the state, and what is restored must fit; the step learns from the fresh groups as well.
    """
    replay = subject.bind()
    state = replay.init(_empty())
    first = shapes(state)
    for step in range(STEPS):
        fresh = _fresh(step)
        before = [{name: array.copy() for name, array in each.items()} for each in (state, fresh)]
        _, after, metrics = _step(replay, state, step, fresh)
        changed = differing(state, before[0]) + differing(fresh, before[1])
        if changed:
            raise Failed(f"in step {step} it changes {', '.join(changed)}")
        if shapes(after) != first:
            raise Failed(f"after step {step} the state is {shapes(after)}, but {first} at first")
        odd = {name: value for name, value in metrics.items() if not np.isfinite(float(value))}
        if odd:
            raise Failed(f"in step {step} it reports {odd}")
        state = after


@check("replay", fix="Draw from the generator that `step` is given, and remember everything in the state.")
def resumes_replaying(subject: Subject) -> None:
    """The same state, groups and generator give the same result, also in a fresh instance and after pickling.

    A run that is killed continues from a checkpoint bit for bit.
    """
    history = history_of(subject)
    for step in range(1, len(history)):
        loaded = pickle.loads(pickle.dumps(history[step - 1][1]))
        earlier, after, _ = _step(subject.bind(), loaded, step, _fresh(step))
        differ = differing(earlier, history[step][0]) + differing(after, history[step][1])
        if differ:
            raise Failed(f"from a checkpoint, {listing(differ)} differ in step {step}")


@check("replay", fix="Where the buffer is full, let new groups take the places of others: index modulo capacity.")
def goes_on_taking_in(subject: Subject) -> None:
    """In 40 steps, and as many more as the largest of its whole numbers, whose scores spread more and more, some group
    of the second half joins a later step.

    A buffer that is full once and for all replays what the policy did at the beginning of the run.
    """
    replay, many = subject.bind(), MANY + longest(subject)
    state, late = replay.init(_empty()), list[bytes]()
    for step in range(many):
        fresh = _fresh(step)
        fresh["scores"] = fresh["scores"] * np.float32(1 + step) * np.array([[1.0], [-1.0], [1.0]], np.float32)
        fresh["score_table"] = fresh["scores"][..., None]
        earlier, state, _ = _step(replay, state, step, fresh)
        joined = np.flatnonzero(earlier["mask"].any(axis=(1, 2)))
        if any(earlier["tokens"][group].tobytes() in late for group in joined):
            return
        if step >= many // 2:
            late += [group.tobytes() for group in fresh["tokens"]]
    raise Failed(f"of the groups from step {many // 2} on, none has joined a step until step {many}")


@check("replay", fix="Advance the place where the next group is stored, and keep it in the state.")
def fills_its_places(subject: Subject) -> None:
    """Once many groups have been stored, at least half of those that join are not empty, if any ever are.

    A buffer that is written to at the same place in each step stays empty elsewhere, and empty groups join instead.
    """
    replay, many = subject.bind(), 2 * (MANY + longest(subject))
    state, joined = replay.init(_empty()), []
    for step in range(many):
        earlier, state, _ = _step(replay, state, step, _fresh(step))
        joined += [earlier["mask"].any(axis=(1, 2))] * (step >= many // 2)
    share = float(np.mean(joined))
    if 0 < share < HALF:
        raise Failed(f"from step {many // 2} to {many}, of the groups that join {share:.0%} have a token")


@check(
    "replay",
    when=lambda component: CAPACITY in component.params and allows(component, CAPACITY, ROOM),
    fix="Move the place where the next group goes on by as many as were stored, and keep it in the state. If all"
    " that is stored joins in the next step, declare settings={'name': value} with which less does.",
)
def uses_its_room(subject: Subject) -> None:
    """With a `capacity` of 24 groups, some group that joins is older than the step before; or does if another whole
    number is 1, so that fewer join than are stored.

    A buffer that writes to the same places in each step forgets every group at once, whatever its size.
    """
    params = subject.component.params
    whole = [name for name, value in params.items() if type(value) is int and name != CAPACITY]
    for few in ({}, *({name: 1} for name in whole if allows(subject.component, name, 1))):
        ages = _ages(Subject(subject.component, {**subject.given, **few, CAPACITY: ROOM}).bind())
        if not ages or max(ages) > 1:
            return
    raise Failed(f"in {MANY} steps of {FRESH} groups each, every group that joins is from the step before")


@check(
    "replay",
    when=lambda component: any(AGE.search(name) and allows(component, name, OLD) for name in component.params),
    fix="Add one to the age of what stays, in every step.",
)
def lets_go_of_what_is_old(subject: Subject) -> None:
    """With a number called `max_age` or `max_staleness` of 3, no group joins that was sampled more than 3 steps before.

    What never grows too old is replayed for ever, whatever the policy has become.
    """
    name = next(name for name in subject.component.params if AGE.search(name))
    ages = _ages(Subject(subject.component, {**subject.given, name: OLD}).bind())
    if max(ages, default=0) > OLD + 1:  # whether the step in which it was sampled counts is the author's choice
        raise Failed(f"with '{name}' = {OLD} a group joins {max(ages)} steps after it was sampled")


def _exponents(component: Component) -> list[str]:
    return [name for name in component.params if EXPONENT.search(name) and allows(component, name, 0.0)]


@check(
    "replay",
    when=lambda component: bool(_exponents(component)),
    fix="Give what may not be drawn a weight of zero after the power is taken: np.where(spread > 0, spread**alpha, 0).",
)
def a_power_of_zero_lets_nothing_in(subject: Subject) -> None:
    """With a number called `alpha`, `power` or `exponent` at 0, no group of equal scores joins, unless some does with
    its default.

    0**0 is 1: what has a priority of zero, and is never drawn otherwise, is drawn as often as everything else.
    """
    if _equal_joined(subject.bind()):
        raise Inapplicable("groups of equal scores join")
    for name in _exponents(subject.component):
        joined = _equal_joined(Subject(subject.component, {**subject.given, name: 0.0}).bind())
        if joined:
            raise Failed(
                f"with '{name}' = 0, {joined} groups of equal scores join in {MANY} steps; otherwise none does"
            )


def _equal_joined(replay: Any) -> int:
    """Return how many groups of equal scores join where one of the groups of each step is such a group."""
    state, joined = replay.init(_empty()), 0
    for step in range(MANY):
        fresh = _fresh(step)
        fresh["scores"][step % 2] = 1.0
        fresh["score_table"] = fresh["scores"][..., None]
        earlier, state, _ = _step(replay, state, step, fresh)
        there = earlier["mask"].any(axis=(1, 2))
        joined += int(np.sum(there & (np.ptp(earlier["scores"], axis=1) == 0)))
    return joined


def _ages(replay: Any) -> list[int]:
    """Return how many steps before each group that joins was sampled."""
    state, born, ages = replay.init(_empty()), {}, []
    for step in range(MANY):
        fresh = _fresh(step)
        earlier, state, _ = _step(replay, state, step, fresh)
        joined = np.flatnonzero(earlier["mask"].any(axis=(1, 2)))
        ages += [step - born[earlier["tokens"][group].tobytes()] for group in joined]
        born |= {group.tobytes(): step for group in fresh["tokens"]}
    return ages

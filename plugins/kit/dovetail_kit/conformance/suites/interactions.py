"""Claims about interactions."""

from __future__ import annotations

import copy
import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dovetail.errors import listing
from dovetail.kinds.data import ASSISTANT
from dovetail.protocols import Step, Turn
from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.episodes import (
    NUMBERS,
    STEADY,
    TEXTS,
    TURNS,
    are_equal,
    begun,
    episodes_of,
    example_of,
)
from dovetail_lab.metric import EPISODES

WHICH: Final = re.compile(r"\b(first|last) (?:number|integer)\b", re.IGNORECASE)
BEYOND: Final = "9876543210"
SMALL: Final = ("1", "2", "3")
MANY_EPISODES: Final = 8
REGRET: Final = {"regret", "cumulative_regret", "total_regret", "mean_regret"}


@check(
    "interaction",
    fix="Draw from the generator that is given, make a new state instead of changing one, and answer every turn but the"
    " last with a message.",
)
def is_a_function(subject: Subject) -> None:
    """The same state, turn and generator give the same step, old states are not modified, and a turn is answered.

    Otherwise episodes could be neither resumed nor branched, and no run with them would be repeatable.
    """
    interaction = subject.bind()
    generators = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    first = episodes_of(interaction)
    for number, text in enumerate(TEXTS):
        state, said = interaction.reset(example_of(interaction), np.random.default_rng(number))
        again = interaction.reset(example_of(interaction), np.random.default_rng(number))
        if tuple(said) != tuple(again[1]) or not are_equal(state, again[0]):
            raise Failed("reset with the same generator gives another state or other messages")
        _walk(interaction, state, text)
    if generators != (random.getstate(), repr(np.random.get_state())):  # noqa: NPY002
        raise Failed("it draws from a random number generator of the whole process, not from the one that it is given")
    for earlier, later in zip(first, episodes_of(interaction), strict=False):
        if earlier != later:
            raise Failed(
                f"after other episodes it gives {later[:120]}, and {earlier[:120]} at first: it keeps something"
            )


@check(
    "interaction",
    when=lambda component: hasattr(component.load(), "anchor"),
    fix="Return what the policy sees of the state, a number or a tuple; no id(), no counter and no time.",
)
def equal_states_are_anchored_alike(subject: Subject) -> None:
    """`anchor` gives the same value for equal states of two episodes, and one that can be compared.

    Steps of different episodes are grouped by it: with a value of its own for each, no step has another one beside it.
    """
    interaction: Any = subject.bind()
    for state, _ in _played(interaction, TEXTS[:5]):
        ours, theirs = interaction.anchor(state), interaction.anchor(copy.deepcopy(state))
        if ours != theirs or hash(ours) != hash(theirs):
            raise Failed(f"a state has the anchor {ours!r}, and one that equals it {theirs!r}")


@check("interaction", fix="Name its metrics otherwise; those of the engine stand.")
def metrics_of_its_own(subject: Subject) -> None:
    """No metric of a step has a name that the engine has for one of episodes, such as `turns_mean`.

    Both would be `episode/NAME`, and the interaction's would never be seen.
    """
    for _, step in _played(subject.bind(), TEXTS):
        if taken := sorted(name for name in step.metrics if name in EPISODES or name.startswith("ended/")):
            raise Failed(f"a step has the metric {listing(map(repr, taken))}, which the engine has for all episodes")


@check("interaction", fix="Name every column that reset reads in `columns`; what has a default is not there otherwise.")
def announces_its_columns(subject: Subject) -> None:
    """It looks at no column of an example that `columns` does not announce.

    A column that is not announced is not asked of the task: with another one, all episodes begin with the default.
    """
    interaction: Any = subject.bind()
    seen: set[str] = set()
    interaction.reset(_Watched(example_of(interaction), seen), np.random.default_rng(0))
    unannounced = seen - {"prompt", *interaction.columns}
    if unannounced:
        raise Failed(f"reset looks at {listing(map(repr, unannounced))}, and `columns` is {interaction.columns}")


@check(
    "interaction",
    when=lambda component: bool(WHICH.search(_told_of(component))),
    fix="Take the last match, re.findall(...)[-1], if the docstring says the last; or correct what it says.",
)
def the_number_that_it_says(subject: Subject) -> None:
    """If its docstring speaks of the last number of a turn, or of the first, a turn of two is answered as that alone.

    What comes before is what a policy thinks aloud: an episode would go by a number that it has considered and dropped.
    """
    said = {word.lower() for word in WHICH.findall(_told_of(subject.component))}
    if len(said) > 1:
        raise Inapplicable("its docstring speaks of the first number and of the last one")
    (which,) = said
    interaction: Any = subject.bind()
    state, _ = interaction.reset(example_of(interaction), np.random.default_rng(0))

    def answer(text: str) -> Any:
        step = interaction.step(state, Turn(text=text, number=0), np.random.default_rng(0))
        return repr((step.state, step.messages, step.reward, step.done))

    other_one: list[str] = []
    for one, other in ((one, other) for one, other in itertools.permutations(NUMBERS, 2) if len(one) == len(other)):
        text, (meant, passed_over) = f"{one}, or {other}", (other, one) if which == "last" else (one, other)
        if answer(meant) == answer(passed_over):
            continue
        if answer(text) != answer(passed_over):
            return
        other_one.append(f"'{text}' is answered as '{passed_over}' is, and its docstring says the {which} number")
    if other_one:
        raise Failed(other_one[0])


@check(
    "interaction",
    when=lambda component: bool(WHICH.search(_told_of(component))),
    fix="Treat a turn without a number by itself: with -1 as its index, names[-1] is the last of the names.",
)
def no_number_is_no_answer(subject: Subject) -> None:
    """A turn that has no number is answered otherwise than one with a number that counts, or as one out of range, or
    as every small number.

    A policy that names no arm, and pulls the last one by it, learns to say nothing.
    """
    interaction: Any = subject.bind()
    for seed in range(MANY_EPISODES):
        state, _ = begun(interaction, seed)

        def answer(text: str, state: Any = state, seed: int = seed) -> Any:
            step = interaction.step(state, Turn(text=text, number=0), np.random.default_rng(seed))
            return repr((step.messages, step.reward, step.done))

        silent, beyond = answer(STEADY[0]), answer(BEYOND)
        like = [number for number in SMALL if answer(number) == silent]
        # if all small numbers are answered alike, they too are no choice, such as offers that are too low
        if like and silent != beyond and len(like) < len(SMALL):
            raise Failed(f"{STEADY[0]!r}, in which there is no number, is answered as '{like[0]}' is: {silent[:200]}")


@check(
    "interaction",
    fix="Take it from what was to be expected of the choice, max(p) - p[arm], not from what came out: max(p) - won.",
)
def regret_is_no_luck(subject: Subject) -> None:
    """After a first turn no metric called `regret` is below zero.

    Nothing is better than the best choice. Taken from what came out, it falls with good luck, and its curve shows that.
    """
    interaction: Any = subject.bind()
    for seed, text in itertools.product(range(MANY_EPISODES), SMALL):
        state, rng = begun(interaction, seed)
        metrics = interaction.step(state, Turn(text=text, number=0), rng).metrics
        for name in REGRET & {*metrics}:
            if metrics[name] < -1e-6:
                raise Failed(f"after a first turn of '{text}' the metric '{name}' is {metrics[name]:.6g}")


def _played(interaction: Any, texts: Sequence[str]) -> Iterator[tuple[Any, Step]]:
    """Yield each state of some episodes, in which a policy says the same in every turn, and the step from it."""
    for number, text in enumerate(texts):
        state, _ = begun(interaction, number)
        for turn in range(TURNS):
            step = interaction.step(state, Turn(text=text, number=turn), np.random.default_rng(turn))
            yield state, step
            if step.done:
                break
            state = step.state


def _walk(interaction: Any, state: Any, text: str) -> None:
    for turn in range(TURNS):
        said = Turn(text=text, number=turn)
        before = copy.deepcopy(state)
        step, other = (interaction.step(state, said, np.random.default_rng(turn)) for _ in range(2))
        if not isinstance(step, Step):
            raise Failed(f"it answers {text[:40]!r} with {type(step).__name__}, not with a Step")
        if not are_equal(state, before):
            raise Failed(f"the answer to {text[:40]!r} changes the state {before} to {state}")
        answers = [(tuple(each.messages), each.reward, each.done) for each in (step, other)]
        if answers[0] != answers[1] or not are_equal(step.state, other.state):
            raise Failed(f"{text[:40]!r} in the state {before} is answered with {step}, and then with {other}")
        _can_go_on(step, text)
        if step.done:
            return
        state = step.state


def _can_go_on(step: Step, text: str) -> None:
    roles = [message.get("role") for message in step.messages]
    for message in step.messages:
        if not {"role", "content"} <= {*message}:
            raise Failed(f"it answers {text[:40]!r} with the message {dict(message)}, which has no role or no content")
    if ASSISTANT in roles:
        raise Failed(f"it answers {text[:40]!r} in the role '{ASSISTANT}', which is the policy's")
    if not np.isfinite(step.reward):
        raise Failed(f"it answers {text[:40]!r} with a reward of {step.reward}")
    if not step.done and not roles:
        raise Failed(
            f"it answers {text[:40]!r} with no message, although the episode goes on: there is nothing to read"
        )


def _told_of(component: Component) -> str:
    """Return its docstring in one line."""
    return " ".join(component.doc.split())


class _Watched(dict[str, Any]):
    """An example that notes which columns are looked at by name."""

    def __init__(self, example: Mapping[str, Any], seen: set[str]) -> None:
        super().__init__(example)
        self._seen = seen

    def __getitem__(self, name: str) -> Any:
        self._seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._seen.add(name)
        return super().get(name, default)

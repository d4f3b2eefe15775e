"""Claims about the settings of what runs on the host: each number does something, and the order of a dict nothing."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dovetail.errors import DovetailError
from dovetail.ranges import plain
from dovetail.registry import Component
from dovetail_kit.conformance.again import told
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject, longest
from dovetail_kit.conformance.suites.curricula import PROMPTS, generator_of, steps_of
from dovetail_kit.conformance.suites.episodes import TURNS, played
from dovetail_kit.conformance.suites.hyperparameters import FIX, numbers_of, others, refuse_unseen
from dovetail_kit.conformance.suites.models import VOCABULARY, tiny_model
from dovetail_kit.conformance.suites.texts import asks_of_many_texts, call_on, is_pure, records_of

REWARDED: Final = ("answer", "process_reward", "reward")
NEAR: Final = tuple(
    form.format(number)
    for number in ("41", "42.0001", "42.5", "43", "45", "55", "84", "-42")
    for form in ("{}", "<answer>{}</answer>", "#### {}", r"\boxed{{{}}}")
)
"""Answers that are nearly 42, in the forms that are common."""
LENGTHS: Final = tuple("ab c. " * count for count in (1, 5, 20, 100, 500))
TABLE: Final = np.array([[1.0, 2.0], [0.5, -0.25], [np.nan, 0.75], [0.0, 3.0]])
COURSES: Final = (
    lambda step: -100.0,
    lambda step: 0.3,
    lambda step: 5.0,
    lambda step: 0.02 * step,
    lambda step: 1.0 + 1e-4 * step,
    lambda step: 2.0 - 0.02 * step,
    lambda step: 0.05 * min(step, 60 - step),
)
"""Curves of a trial: level, rising fast and slowly, falling, and both."""
LIMIT: Final = re.compile(r"turns|steps|moves|guesses|rounds")
MANY_PROMPTS: Final = 50
SEVERAL: Final = (1, 2, 3, 5, 20)
"""Numbers of other trials."""


def _texts(subject: Subject) -> list[Any]:
    like = records_of(subject)
    answer = {"answer": "42"} if isinstance(like[0].get("answer"), str) else {}
    further = [like[0] | answer | {"completions": text} for text in (*NEAR, *LENGTHS)]
    if "group_ids" in subject.component.reads:  # a group of many, some of them alike, beside those of two
        further += [record | {"group_ids": -1} for record in (*like, *like)]
    return call_on(subject, like + further)


def _choices(subject: Subject) -> list[Any]:
    curriculum: Any = subject.bind()
    longer = longest(subject) // 2
    states = [steps_of(curriculum, count) for count in (3, PROMPTS)]
    states += [steps_of(curriculum, 5, steps, MANY_PROMPTS) for steps in {5, longer} - {0}]
    chosen = [curriculum.choose(state, 5, generator_of(seed)).tolist() for state in states for seed in range(20)]
    return [*chosen, *([array.tolist() for array in state.values()] for state in states)]


def _weights(subject: Subject) -> list[Any]:
    """The weights of a follower after some steps, each from the same weights."""
    follower: Any = subject.bind()
    weights = {"kernel": jnp.linspace(-1, 1, 6).reshape(3, 2)}
    given = {"weights": weights, "policy": jax.tree.map(lambda x: 0.5 * x, weights)}
    steps = (*range(1, 11), 50, 99, 100, 101, 200, 203)
    reads = subject.component.reads
    return [
        np.asarray(follower(*((given | {"step": jnp.int32(step)})[name] for name in reads))["kernel"]).tolist()
        for step in (steps if "step" in reads else (1,))
    ]


def _stops(subject: Subject) -> list[Any]:
    rule: Any = subject.bind()
    trials = [[(step, 0.01 * (trial * 7 % 20) * step) for step in range(0, 101, 5)] for trial in range(20)]
    offered = {"total_steps": 100}
    found = []
    for course in COURSES:
        for length in range(1, 21, 3):
            for count in SEVERAL:
                asked = {"curve": [(step, course(step)) for step in range(0, 5 * length, 5)], "others": trials[:count]}
                found.append(rule(*(copy.deepcopy((offered | asked)[name]) for name in subject.component.reads)))
    return found


def _adapted(subject: Subject) -> list[Any]:
    def shapes() -> Any:
        adapted = subject.bind().apply(tiny_model(VOCABULARY), rngs=nnx.Rngs(1))
        return nnx.to_pure_dict(nnx.state(adapted, nnx.LoRAParam))

    return [
        (jax.tree_util.keystr(path), leaf.shape) for path, leaf in jax.tree.leaves_with_path(jax.eval_shape(shapes))
    ]


SHOWN: Final[dict[str, Callable[[Subject], list[Any]]]] = {
    "adapter": _adapted,
    "curriculum": _choices,
    "early_stopping": _stops,
    "follower": _weights,
    "interaction": played,
    "reward_manager": lambda subject: [np.asarray(subject.bind()(TABLE.copy(), ("first", "second"))).tolist()],
    "task": told,
} | dict.fromkeys(REWARDED, _texts)
"""For each kind, what a component gives on the host, as data that can be compared."""


OF_TEXTS: Final = "on its examples, answers near 42, and texts of up to 3,000 characters"
DATA: Final = {
    "adapter": "on a model of width 16",
    "curriculum": f"after 5 steps, and half as many as its largest whole number says, with {PROMPTS} and with"
    f" {MANY_PROMPTS} prompts, whose scores are 0 or 1",
    "early_stopping": "on curves of up to 20 values at the steps 0 to 95 of 100, which are level at -100, 0.3 or 5, or"
    " rise or fall by up to 0.05 a step, beside 1 to 20 other trials that rise to 0 to 19",
    "follower": "over 203 steps towards a policy of half the weights",
    "interaction": f"in episodes whose turns are texts such as '7 or 8?', of {3 * TURNS} turns or fewer",
    "reward_manager": "on four completions with rewards of -1 to 3, one of which abstained",
    "task": "in its examples",
}
"""On which data that is found, by kind."""


def _can_be_shown(component: Component) -> bool:
    """Tell whether it gives the same again, and asks neither another process nor a server."""
    return is_pure(component) and not {"processes", "url"} & {*component.params}


@check(*SHOWN, name="every_number_counts", when=_can_be_shown, fix=FIX)
def every_number_on_the_host_counts(subject: Subject) -> None:
    """Another value of any hyperparameter that is a number changes something that the checks see.

    A limit that is never applied, or a size that is written into the code, would go unnoticed: a sweep over it would
    compare identical runs.
    """
    numbers, shown = _visible(subject), SHOWN[subject.component.kind]
    if not numbers:
        return
    try:
        before = shown(subject)
    except DovetailError as error:
        raise Inapplicable(f"it cannot be asked here: {error}") from error
    if subject.component.kind in REWARDED and len({repr(result) for result in before}) == 1:
        raise Inapplicable("all texts that are known here get the same: declare examples")
    shown_before = repr(before)
    found = {
        name: _unseen(subject, name, others(subject.component, name, value), shown_before)
        for name, value in numbers.items()
    }
    refuse_unseen(
        subject, {name: tried for name, tried in found.items() if tried}, DATA.get(subject.component.kind, OF_TEXTS)
    )


def _visible(subject: Subject) -> dict[str, Any]:
    """Return the numbers whose effect can be seen here."""
    numbers, kind = numbers_of(subject), subject.component.kind
    if kind == "adapter":  # which begins as the base, so that only what counts parameters shows
        return {name: value for name, value in numbers.items() if isinstance(value, int)}
    if kind == "interaction":  # nobody here knows what would be right to say, but every episode has an end
        return {name: value for name, value in numbers.items() if LIMIT.search(name)}
    return numbers


def _unseen(subject: Subject, name: str, values: Iterable[Any], before: str) -> list[Any]:
    """Return the values of a number with which it gives what it gave before; none if one of them changes something."""
    tried = []
    for value in values:
        found = _shown_with(subject, name, value)
        if found not in (None, before):
            return []
        tried += [value] * (found is not None)
    return tried


def _shown_with(subject: Subject, name: str, value: Any) -> str | None:
    """Return what a component gives with another value of a number; None if this value does not go with the others."""
    try:
        return repr(SHOWN[subject.component.kind](_with(subject, **{name: value})))
    except (DovetailError, Inapplicable, ValueError, ArithmeticError, LookupError):
        return None


def _with(subject: Subject, **changed: Any) -> Subject:
    return Subject(subject.component, {**subject.given, **changed})


def _turned(subject: Subject) -> Iterator[tuple[str, dict[Any, Any]]]:
    for name, value in subject.params.items():
        if isinstance(value, dict) and len(value) > 1:
            yield name, dict(reversed(value.items()))


@check(*REWARDED, "reward_manager", when=is_pure, fix="Look settings up by their keys; the order of a dict is chance.")
def order_of_settings(subject: Subject) -> None:
    """The order in which a config writes the entries of a dict changes nothing.

    Configs are sorted, merged and written out again, so the order is not the author's.
    """
    asks_of_many_texts(subject)
    shown = SHOWN[subject.component.kind]
    for name, value in _turned(subject):
        if repr(shown(subject)) != repr(shown(_with(subject, **{name: value}))):
            raise Failed(f"'{name}' = {value} gives other results than {subject.params[name]}")


@check("reward_manager", unless="compares", fix="Find a reward's column by its place in reward_names.")
def by_name(subject: Subject) -> None:
    """Weights by name belong to the rewards of these names, in whatever order `train.rewards` has them.

    With weights in an order of their own, the format is rewarded as the answer should be.
    """
    hints = subject.component.hints
    named = [name for name in subject.component.params if "dict[str" in str(plain(hints[name])).replace(" ", "")]
    for name in named:
        manager: Any = _with(subject, **{name: {"second": 0.25, "first": 2.0}}).bind()
        scores = np.asarray(manager(TABLE.copy(), ("first", "second")))
        turned = np.asarray(manager(TABLE[:, ::-1].copy(), ("second", "first")))
        if not np.allclose(scores, turned, equal_nan=True):
            raise Failed(
                f"with '{name}' by name, the rewards in another order give {turned.tolist()} instead of"
                f" {scores.tolist()}"
            )

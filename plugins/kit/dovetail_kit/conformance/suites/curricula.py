"""Claims about curricula: which prompts come next, and what is remembered of their scores."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.step.parts import split_metrics
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.states import differing, shapes
from dovetail_kit.conformance.subject import Subject, allows

PROMPTS, SAMPLES = 7, 4
FEW, LONG = 2, 300
DRAWS, UNEVEN = 300, 0.1

State = Mapping[str, np.ndarray]


def generator_of(seed: int = 0) -> np.random.Generator:
    """Return the generator that a curriculum draws from."""
    return np.random.default_rng(seed)


def _scores(chosen: np.ndarray, seed: int, prompts: int = PROMPTS) -> np.ndarray:
    """Return scores of the chosen prompts, whose means differ; some scores are missing, and all of some prompts."""
    scores = (generator_of(seed).random((len(chosen), SAMPLES)) * prompts < chosen[:, None]).astype(float)
    scores[0, 1:] = np.nan
    scores[-1] = np.nan if seed % 2 else scores[-1]
    return scores


def steps_of(curriculum: Any, count: int, steps: int = 5, prompts: int = PROMPTS) -> State:
    """Go through some steps; return the last state.

    Raises:
        Failed: if a step chooses what it may not.
    """
    state = curriculum.init(prompts)
    for step in range(steps):
        chosen = np.asarray(curriculum.choose(state, count, generator_of(step)))
        is_index = chosen.shape == (count,) and np.issubdtype(chosen.dtype, np.integer)
        if not is_index or chosen.min() < 0 or chosen.max() >= prompts:
            raise Failed(f"asked for {count} of {prompts} prompts, in step {step} it chooses {chosen.tolist()}")
        state, _ = split_metrics(curriculum.update(state, chosen, _scores(chosen, step, prompts)))
    return state


@check(
    "curriculum",
    fix="Return an np.ndarray of exactly `count` integers between 0 and the last example's index.",
)
def chooses(subject: Subject) -> None:
    """It chooses as many existing prompts as it is asked for, even if that is more than there are.

    A step is compiled for one shape, and a small dataset may have fewer prompts than a step.
    """
    for count in (1, PROMPTS - 2, PROMPTS, 2 * PROMPTS + 1):
        steps_of(subject.bind(), count)


@check("curriculum", fix="Copy an array before you change it, and keep the shapes and types that `init` returns.")
def state_is_data(subject: Subject) -> None:
    """Its state consists of numpy arrays whose shapes and types never change, and no method changes its arguments.

    Checkpoints contain the state, and a restored one must fit. Changing a state in place would also change that of the
    previous step.
    """
    curriculum = subject.bind()
    state = curriculum.init(PROMPTS)
    first = shapes(state)
    for step in range(4):
        given = {name: array.copy() for name, array in state.items()}
        chosen = np.asarray(curriculum.choose(state, 3, generator_of(step)))
        scores = _scores(chosen, step)
        before = scores.copy()
        after, metrics = split_metrics(curriculum.update(state, chosen, scores))
        changed = differing(state, given) + ([] if np.array_equal(scores, before, equal_nan=True) else ["scores"])
        if changed:
            raise Failed(f"in step {step} it changes {', '.join(changed)}")
        if shapes(after) != first:
            raise Failed(f"after step {step} the state is {shapes(after)}, but {first} at first")
        odd = {name: value for name, value in metrics.items() if not np.isfinite(float(value))}
        if odd:
            raise Failed(f"in step {step} it reports {odd}")
        state = after


@check("curriculum", fix="Take the largest off before exponentials: np.exp(score - score.max()).")
def chooses_by_any_score(subject: Subject) -> None:
    """It chooses prompts also where scores go up to a million, or down to minus a million, and where all are the same.

    A softmax that exponentiates a score of 1,000 as it is overflows, and all chances are NaN.
    """
    for scale in (-1e6, 0.0, 1e6):
        curriculum = subject.bind()
        state = curriculum.init(PROMPTS)
        for step in range(4):
            try:
                chosen = np.asarray(curriculum.choose(state, FEW, generator_of(step)))
            except ValueError as error:
                raise Failed(f"after scores of 0 to {scale:g} it cannot choose: {error}") from None
            scores = scale * generator_of(step).random((FEW, SAMPLES))
            state, _ = split_metrics(curriculum.update(state, chosen, scores))


@check("curriculum", fix="Draw from the generator that `choose` is given, and remember everything in the state.")
def resumes_choosing(subject: Subject) -> None:
    """The same state and generator choose the same prompts, also in a fresh instance and after pickling.

    A run that is killed continues from a checkpoint bit for bit, and the arms of an A/B test share random numbers.
    """
    state = steps_of(subject.bind(), 5)
    loaded: State = pickle.loads(pickle.dumps(state))
    expected = np.asarray(subject.bind().choose(state, 5, generator_of(99)))
    used = subject.bind()
    steps_of(used, 3)
    for what, curriculum, remembered in (("asked again", used, state), ("from a checkpoint", subject.bind(), loaded)):
        found = np.asarray(curriculum.choose(remembered, 5, generator_of(99)))
        if not np.array_equal(found, expected):
            raise Failed(f"{what}, it chooses {found.tolist()} instead of {expected.tolist()}")


@check("curriculum", fix="Use `chosen` as it is: scores[i] are those of the prompt chosen[i].")
def scores_of_their_prompts(subject: Subject) -> None:
    """The scores of different prompts leave the same state in whatever order they come.

    If prompts are sorted and their scores are not, each prompt has the success of another one.
    """
    curriculum = subject.bind()
    state = steps_of(curriculum, PROMPTS)
    chosen = np.array([4, 1, 6, 0, 3])
    scores = _scores(chosen, 0)
    for order in (np.argsort(chosen), np.arange(len(chosen))[::-1]):
        (ours, _), (theirs, _) = (
            split_metrics(curriculum.update(state, chosen[rows], scores[rows])) for rows in (slice(None), order)
        )
        names = [name for name in ours if not np.allclose(ours[name], theirs[name], equal_nan=True)]
        if names:
            raise Failed(
                f"after scores of the prompts {chosen.tolist()}, '{names[0]}' is {ours[names[0]].tolist()}, and"
                f" {theirs[names[0]].tolist()} after the same scores of {chosen[order].tolist()}"
            )


@check("curriculum", fix="Count in np.int64, or in np.float64.")
def counts_for_long(subject: Subject) -> None:
    """In 300 steps with the same few prompts no count in the state wraps round.

    A small dataset is gone through hundreds of times. A count of eight bits is negative from 128 on, and the prompts
    that came most often come first.
    """
    curriculum = subject.bind()
    state = curriculum.init(FEW)
    for step in range(LONG):
        chosen = np.asarray(curriculum.choose(state, FEW, generator_of(step)))
        after, _ = split_metrics(curriculum.update(state, chosen, np.zeros((FEW, SAMPLES))))
        for name, value in after.items():
            if not np.issubdtype(value.dtype, np.integer):
                continue
            leap = value.astype(object) - np.asarray(state[name]).astype(object)
            if np.any(np.abs(leap) >= 2 ** (8 * value.dtype.itemsize - 1)):
                raise Failed(f"in step {step} '{name}' goes from {state[name].tolist()} to {value.tolist()}")
        state = after


@check("curriculum", fix="Leave what is known of a prompt as it was where all of its scores are NaN.")
def no_score_is_no_failure(subject: Subject) -> None:
    """What scores change of a prompt's state stays as it was where the prompt has no score: not as after scores of 0,
    where those change it.

    A prompt whose reward abstained, or whose episodes broke, would be taken for one that is never solved.
    """
    curriculum = subject.bind()
    state, _ = split_metrics(
        curriculum.update(curriculum.init(PROMPTS), np.arange(PROMPTS), _scores(np.arange(PROMPTS), 2))
    )
    chosen, prompt = np.array([4, 1, 6]), 1
    scores = _scores(chosen, 0)
    after = {}
    for score in (0.0, 1.0, np.nan):
        given = scores.copy()
        given[chosen.tolist().index(prompt)] = score
        after[score], _ = split_metrics(curriculum.update(state, chosen, given))
    failed, solved, absent = after.values()
    for name, before in state.items():
        if before.shape[:1] != (PROMPTS,) or np.array_equal(failed[name][prompt], solved[name][prompt], equal_nan=True):
            continue  # it is not about prompts, or scores do not change it
        same_as = [np.allclose(absent[name][prompt], each[name][prompt], equal_nan=True) for each in (failed, state)]
        if same_as == [True, False]:
            raise Failed(
                f"after a step in which prompt {prompt} has no score its '{name}' is {absent[name][prompt]:.6g}, as"
                f" after scores of 0; before it was {before[prompt]:.6g}"
            )


@check(
    "curriculum",
    fix="Add up with np.add.at(count, chosen, 1): count[chosen] += 1 counts a prompt once. If the last score alone is"
    " to count, go through the prompts in a loop.",
)
def counts_a_prompt_twice(subject: Subject) -> None:
    """If a prompt is chosen twice in a step, what is remembered depends on both of its scores, unless the later one
    replaces the earlier one in the next step as well.

    An assignment by indices to what is to add up keeps one of them, and which one nobody said.
    """
    curriculum: Any = subject.bind()
    state, chosen = steps_of(curriculum, FEW), np.array([3, 3, 1])

    def updated(before: State, rows: slice, scores: np.ndarray) -> State:
        given = {name: array.copy() for name, array in before.items()}
        return split_metrics(curriculum.update(given, chosen[rows].copy(), scores[rows].copy()))[0]

    def after(first: float, second: float) -> tuple[State, State]:
        """Return the state after a step with both scores of the prompt, and after two steps with one of them each."""
        scores = np.repeat([[first], [second], [0.5]], SAMPLES, axis=1)
        return updated(state, slice(3), scores), updated(updated(state, slice(1), scores), slice(1, 3), scores)

    (neither, _), (earlier, in_turn), (later, later_in_turn) = after(0.0, 0.0), after(1.0, 0.0), after(0.0, 1.0)
    for name in state:
        changes = [bool(differing({name: neither[name]}, {name: other[name]})) for other in (earlier, later)]
        replaced = all(
            np.allclose(ours[name], theirs[name], equal_nan=True)
            for ours, theirs in ((earlier, in_turn), (later, later_in_turn))
        )
        if changes[0] != changes[1] and not replaced:
            raise Failed(
                f"of two scores of a prompt in one step, the {'earlier' if changes[0] else 'later'} one alone changes"
                f" '{name}', and one after the other they leave something else there"
            )


@check(
    "curriculum",
    when=lambda component: "temperature" in component.params,
    fix="Divide by it: np.exp(score / temperature); infinitely hot is uniform.",
)
def hotter_is_more_even(subject: Subject) -> None:
    """The larger a number called `temperature` is, the more evenly prompts are drawn.

    Multiplied by it instead of divided, a low temperature, which is to concentrate on a few prompts, draws them all.
    """
    peaks = []
    for temperature in (0.05, 20.0):
        if not allows(subject.component, "temperature", temperature):
            raise Inapplicable(f"its temperature may not be {temperature:g}")
        curriculum: Any = Subject(subject.component, {**subject.given, "temperature": temperature}).bind()
        state = steps_of(curriculum, PROMPTS, steps=20)
        drawn = [int(np.asarray(curriculum.choose(state, 1, generator_of(seed)))[0]) for seed in range(DRAWS)]
        peaks.append(float(np.bincount(drawn, minlength=PROMPTS).max() / DRAWS))
    if peaks[0] < peaks[1] - UNEVEN:
        raise Failed(
            f"of {DRAWS} draws {peaks[0]:.0%} are of one prompt at a temperature of 0.05, {peaks[1]:.0%} at 20"
        )

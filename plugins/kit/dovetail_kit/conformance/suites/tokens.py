"""Claims about process rewards: which token has the credit; and about the metrics of rewards."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from dovetail.registry import Component
from dovetail.step.parts import split_metrics
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.given import GIVEN
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.texts import call_on, is_pure, records_of, short

PAD: Final = " so it goes on and on "
"""Words that earn nothing in most rewards, and that end no sentence."""
NO_WORD: Final = f"{string.punctuation}{string.whitespace}"
ENDS: Final = re.compile(r"\btoken\b[^.;:]{0,60}\b(?:ends?|completes?)\b(?!`)")
WIDTH: Final = 3


def places(component: Component) -> bool:
    """Tell whether it has nothing but the text and its tokens' ends to go by."""
    reads = {*component.reads}
    return is_pure(component) and {"completions", "ends"} <= reads and not {"tokens", "logps"} & reads


@check(
    "process_reward",
    when=places,
    fix="`ends` says at which character each token ends: find the first token that ends there, or later.",
)
def credit_follows_the_ends(subject: Subject) -> None:
    """Where the place of its credit depends on the text, it depends on where the tokens end, too.

    A place in the text, counted in characters, is not the number of a token: another step would have the credit.
    """
    for text, like in _placed(subject):
        count = -(-len(text) // WIDTH)
        rest = len(text) - count
        early, late = ([*range(1 + shift, count + shift), len(text)] for shift in (0, rest))
        first, *others = (_credit(subject, like, text, ends) for ends in (_ends(text, WIDTH), early, late))
        is_at_the_end = not np.any(first[: count - 1])
        if not is_at_the_end and all(np.allclose(first, other) for other in others):
            raise Failed(f"the credit of {short(text)} is at the same of its {count} tokens wherever these end")


@check("process_reward", when=places, fix="Look for the first token whose end is not before that place: bisect_left.")
def credit_stays_with_the_text(subject: Subject) -> None:
    """Credit that a character earns is not at a token behind it that has no text, as the end of sequence has none.

    Off by one, each step has the credit of the step before, and the last one's goes to the end of the completion.
    """
    for whole, like in _placed(subject):
        if not np.allclose(*_with_and_without_end(subject, like, whole + PAD)):
            continue  # it rewards how a completion ends
        for cut in range(1, len(whole) + 1):
            with_end, without = _with_and_without_end(subject, like, whole[:cut])
            if not np.allclose(with_end, without):
                place = int(np.flatnonzero(with_end != without)[0])
                raise Failed(
                    f"with one character to a token, {short(whole[:cut])} gets {without[place]:g} at token {place}, and"
                    f" {with_end[place]:g} if a token without text comes last, which is token {cut}"
                )


def _with_and_without_end(subject: Subject, like: dict[str, Any], text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the credit of each character and of what follows, if an end of sequence does and if nothing does."""
    ends = _ends(text, 1)
    return _credit(subject, like, text, [*ends, len(text)]), np.append(_credit(subject, like, text, ends), 0.0)


def _placed(subject: Subject) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield texts whose credit is elsewhere if the same words come after others, and amounts to as much.

    Raises:
        Inapplicable: if there is none.
    """
    found = False
    for pair in subject.declared.get("examples", ()):
        for record in pair:
            text, like = record["completions"], {name: each for name, each in record.items() if name != "ends"}
            both = [text + PAD, PAD + text]
            before, after = (_credit(subject, like, each, _ends(each, WIDTH)) for each in both)
            if np.isclose(before.sum(), after.sum()) and before.any() and not np.allclose(before, after):
                found = True
                yield both[1], like
    if not found:
        raise Inapplicable("it has no examples whose credit is at a place in the text")


def _ends(text: str, width: int) -> list[int]:
    return [*range(width, len(text), width), len(text)]


def _credit(subject: Subject, like: dict[str, Any], text: str, ends: list[int]) -> np.ndarray:
    (found,) = call_on(subject, [like | {"completions": text, "ends": ends}])
    return np.zeros(len(ends)) if found is None else np.asarray(found, float)


def _says_where_it_ends(component: Component) -> bool:
    """Tell whether it goes by the text alone, and its docstring says that credit is where something ends."""
    told = " ".join(component.doc.partition("Args:")[0].split())
    return places(component) and {*component.reads} == {"completions", "ends"} and bool(ENDS.search(told))


@check(
    "process_reward",
    when=_says_where_it_ends,
    fix="Find the token by the end of the whole match, match.end(), and not by that of its first part.",
)
def credit_is_not_early(subject: Subject) -> None:
    """If its docstring says that credit is at the token that ends something, there is as much if the text ends there.

    Credit at the sign of an equation, before the number that it is for, is given to what has not been written yet.
    """
    for text, like in _placed(subject):
        credit = _credit(subject, like, text, _ends(text, 1))
        place = int(np.flatnonzero(credit)[0])
        behind = text[place + 1 :]
        marks = behind[: len(behind) - len(behind.lstrip(NO_WORD))]  # what may have to close it
        begun = text[: place + 1]
        others = (begun, begun + marks, f"{begun}{marks}\n", f"{begun}{marks}{PAD}", f"{begun}{marks}\n\n{PAD}")
        if not any(np.any(_credit(subject, like, each, _ends(each, 1))) for each in others):
            raise Failed(
                f"the first credit of {short(text)} is at its character {place}, {text[place]!r}, and {short(begun)},"
                " which ends there, gets none"
            )


@check("process_reward", "reward", when=is_pure, fix="Append to each metric for every completion; NaN if it has none.")
def a_metric_for_each(subject: Subject) -> None:
    """Each of its metrics is one number for each completion, NaN where there is none, or one for all of them.

    With fewer, a metric belongs to other completions than it says, and the step that logs it ends the run.
    """
    records = records_of(subject)
    columns = [
        [record[read] if read in record else GIVEN[read](number, record) for number, record in enumerate(records)]
        for read in subject.component.reads
    ]
    for name, values in split_metrics(subject.bind()(*columns))[1].items():
        if np.shape(values) not in ((), (len(records),)):
            raise Failed(f"for {len(records)} completions the metric '{name}' has the shape {list(np.shape(values))}")

"""Claims about samplers in spaces of other forms: choices, few whole numbers, and a single key."""

from __future__ import annotations

import math
from typing import Any, Final

from dovetail.errors import ConfigError, listing
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.sweeps import ENOUGH, MANY, STEPS

DRAWS: Final = 12


def _spaces() -> dict[str, dict[str, Any]]:
    """Return spaces by what they are."""
    from dovetail_lab.sweep import Distribution

    rate, words = Distribution("loguniform", (1e-5, 1e-2)), Distribution("choice", ("cosine", "linear", "constant"))
    few, shares = Distribution("int", (1, 3)), Distribution("choice", (0.0, 0.5, 1.0))
    return {
        "choices": {"train.lr_schedule": words, "train.warmup": shares, "train.lr": rate},
        "few whole numbers": {"train.epochs": few, "train.lr": rate},
        "a single key": {"train.lr": rate},
    }


def _study(subject: Subject, space: Any, draws: int) -> Any:
    try:
        return subject.bind().open(space, draws=draws, seed=0, total_steps=STEPS)
    except ConfigError as error:
        raise Inapplicable(f"it refuses such a space: {error}") from error


@check("sampler", fix="Draw with form.draw(...) or form.at(share), which every form has; form.arguments may be texts.")
def takes_every_form(subject: Subject) -> None:
    """In a space with choices, with few whole numbers or with a single key, it proposes what they allow, whatever the
    results are; or it refuses the space with a ConfigError when it is opened.

    A sweep over names is as common as one over rates, and would end at its first result.
    """
    refused = 0
    for what, space in _spaces().items():
        try:
            _stays_within(_study(subject, space, DRAWS), space, what)
        except (ConfigError, Inapplicable):
            refused += 1
    if refused == len(_spaces()):
        raise Inapplicable("it refuses all of these spaces")


def _stays_within(study: Any, space: Any, what: str) -> None:
    """Complain about a proposal that a space does not allow; one result in five is a failure."""
    from dovetail_lab.kinds import Result

    for number in range(MANY):
        proposal = study.ask()
        if proposal is None:
            return
        for key, form in space.items():
            if key not in proposal.values or not form.allows(proposal.values[key]):
                raise Failed(f"in a space of {what} it proposes {dict(proposal.values)}, and {key} is {form}")
        value = None if number % 5 == 4 else math.sin(number)
        study.tell(number, Result(value=value, curve=() if value is None else ((1, value),)))


@check("sampler", unless="systematic", fix="Let the last one be drawn as well: low + int(u * (high - low + 1)).")
def reaches_every_choice(subject: Subject) -> None:
    """Of 60 proposals of a sampler that does not learn, some have each of three whole numbers, or of three choices.

    A range includes both of its ends. Where the highest number never comes, nobody misses it.
    """
    if subject.bind().learns:
        raise Inapplicable("it learns, so that it may leave out what looks bad")
    for what in ("few whole numbers", "choices"):
        space = _spaces()[what]
        study = _study(subject, space, ENOUGH)
        asked = [each.values for _ in range(ENOUGH) if (each := study.ask()) is not None]
        for key, form in space.items():
            ends = form.arguments if form.form == "choice" else range(1, 4) if form.form == "int" else ()
            missing = [str(value) for value in ends if value not in [values[key] for values in asked]]
            if missing:
                raise Failed(f"none of {len(asked)} proposals of {key}, which is {form}, is {listing(missing)}")


@check("sampler", fix="Leave out a result whose value is None, or count it as worse than all that there are.")
def a_failure_is_no_zero(subject: Subject) -> None:
    """A trial that failed is not one of value 0, both where 0 is better than all others and where it is worse.

    Where accuracies are compared, a failure that counts as 0 is the worst result, and where losses are, with their sign
    turned, the best one.
    """
    if not getattr(subject.bind(), "learns", False):
        raise Inapplicable("it does not learn")
    matters = False
    for best in (-1.0, 3.0):
        failed, zero, other = (_asked(subject, best, value) for value in (None, 0.0, best + 1.0))
        if failed != zero:
            return
        matters |= zero != other
    if matters:
        raise Failed(
            "it proposes the same whether one trial in three failed or had the value 0, for others below 0 and above"
        )


def _asked(subject: Subject, best: float, third: float | None) -> list[Any]:
    """Return the proposals of a study in which results are at most `best`, but for each third one."""
    from dovetail_lab.kinds import Result

    study, asked = _study(subject, _spaces()["a single key"], DRAWS), []
    while len(asked) < MANY and (proposal := study.ask()) is not None:
        value = third if len(asked) % 3 == 2 else best - 0.1 * abs(math.log10(proposal.values["train.lr"]) + 3)
        study.tell(len(asked), Result(value=value, curve=() if value is None else ((1, value),)))
        asked.append(proposal)
    return asked

"""Claims whose values are not what the claim is made of, so that no check can be carried out with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, get_type_hints

from dovetail.errors import listing, nearest
from dovetail.registry import Component
from dovetail.registry.declares import Claims
from dovetail_kit.conformance.claims import CLAIMS
from dovetail_kit.conformance.given import GIVEN

NAMES_PARAMETERS: Final = ("files", "idle", "per_reward", "programs")
"""Claims that are lists of hyperparameters."""
TYPES: Final = get_type_hints(Claims)
PLAIN: Final = {bool: "True or False", int: "a whole number", str: "a text"}


def fault_of(component: Component) -> str:
    """Return what is wrong with the first claim that is malformed; empty if there is none.

    Names that are no claims, and claims about what the component does not read, are for the check `declarations`.
    """
    return next(_faults(component), "")


def _faults(component: Component) -> Iterator[str]:
    for name, value in component.declares.items():
        claim = CLAIMS.get(name)
        if claim is None or (claim.kinds and component.kind not in claim.kinds):
            continue
        if name in _FORMS:
            yield from _FORMS[name](component, value)
        elif (wanted := TYPES.get(name)) in PLAIN:
            if type(value) is not wanted:  # isinstance would take True for a whole number
                yield f"{name}={value!r} is not {PLAIN[wanted]}: {claim.meaning}"
        else:
            yield from _names(component, name, value)


def _settings(component: Component, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _unknown(component, "settings", value)
    else:
        yield f"settings={value!r} is not a dict of hyperparameters: settings={{'NAME': value}}"


def _expected_failures(component: Component, value: Any) -> Iterator[str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in (*value, *value.values())):
        yield f"expected_failures={value!r} is not a dict of reasons: expected_failures={{'CHECK': 'why'}}"


def _names(component: Component, name: str, value: Any) -> Iterator[str]:
    if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
        yield f"{name}={value!r} is not a tuple of names: {name}=('NAME',)"
    elif name in NAMES_PARAMETERS:
        yield from _unknown(component, name, value)


def _unknown(component: Component, claim: str, names: Any) -> Iterator[str]:
    for name in names:
        if name not in component.params:
            yield (
                f"{claim} names {name!r}, which is not a hyperparameter.{nearest(str(name), component.params)}"
                f" Hyperparameters: {listing(component.params)}"
            )


def _range(component: Component, value: Any) -> Iterator[str]:
    numbers = isinstance(value, Sequence) and [
        each for each in value if isinstance(each, int | float) and not isinstance(each, bool)
    ]
    if not numbers or len(value) != 2 or len(numbers) != 2 or not numbers[0] <= numbers[1]:
        yield f"range={value!r} is not the lowest and the highest score, two numbers in this order: range=(0, 1)"


def _examples(component: Component, value: Any) -> Iterator[str]:
    texts = ("It is 42.", "so 7") if component.kind == "answer" else ("better", "worse")
    form = "examples=[({{'completions': {!r}, ...}}, {{'completions': {!r}, ...}})]".format(*texts)
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        yield f"examples={value!r} is not a list of pairs of records: {form}"
        return
    needed = {"completions", *(read for read in component.reads if read not in GIVEN)}
    for number, pair in enumerate(value):
        is_pair = isinstance(pair, Sequence) and len(pair) == 2 and all(isinstance(each, Mapping) for each in pair)
        if not is_pair:
            yield f"examples[{number}] is {pair!r}, not a pair of records, each a dict of columns: {form}"
            continue
        for record in pair:
            if component.kind == "process_reward" and "ends" in record:
                yield f"examples[{number}] has 'ends', which follow from the text: leave them out"
            missing = sorted(needed - record.keys(), key=lambda name: (name != "completions", name))
            if missing:
                meant = nearest(missing[0], [str(column) for column in record if column not in component.reads])
                yield f"examples[{number}] has a record without {missing[0]!r}.{meant} Columns: {listing(record)}"


_FORMS: Final[Mapping[str, Callable[[Component, Any], Iterator[str]]]] = {
    "examples": _examples,
    "expected_failures": _expected_failures,
    "range": _range,
    "settings": _settings,
}

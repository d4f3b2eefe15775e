"""Report the results of components in a separate process; a program that `suites.elsewhere` runs.

It reads the list that `dovetail_kit.conformance.sharded` reads, and writes the result of `told` for each, by name.
Python hashes strings differently in every process, so that the order of a set of strings differs too.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from dovetail.registry import Component, Origin
from dovetail_kit.answers import give
from dovetail_kit.conformance.subject import Subject

SPLITS = ("train", "eval", "sft")
FIRST = 50

MANY_WORDS = "fig 7 apple 42 banana kiwi 13 cherry 109 plum or elderberry 3 pomegranate 5 watermelon"
"""Each of these comes once, so that the order of a set would decide which is the first."""
ERROR = "error"


def told(subject: Subject) -> list[str]:
    """Return what a component gives, as text: the first examples of each split of a task, the ids of a tokenizer that
    was trained, the proposals of a sampler, the choices of a curriculum, the episodes of an interaction, or the scores
    or answers of texts.
    """
    kind = subject.component.kind
    if kind == "task":
        task: Any = subject.bind()
        found = []
        for split in SPLITS:
            examples = task.examples(split)
            shown = [sorted(examples[number].items()) for number in range(min(FIRST, len(examples)))]
            found += [f"{len(examples)} {split} examples", *(f"{split}: {each!r}" for each in shown)]
        return found
    if kind == "tokenizer":
        from dovetail_kit.conformance.suites.data import texts_for, tokenizer_of

        tokenizer = tokenizer_of(subject)
        return [f"{text!r} is encoded as {tokenizer.encode(text)}" for text in texts_for(subject)]
    if kind == "sampler":
        from dovetail_kit.conformance.suites.sweeps import play_study

        return [f"it proposes {each}" for each in play_study(subject)]
    if kind == "curriculum":
        from dovetail_kit.conformance.suites.curricula import generator_of, steps_of

        return [f"it chooses {subject.bind().choose(steps_of(subject.bind(), 3), 5, generator_of()).tolist()}"]
    if kind == "interaction":
        from dovetail_kit.conformance.suites.episodes import episodes_of

        return [f"it plays {each}" for each in episodes_of(subject.bind(), states=True)]
    from dovetail_kit.conformance.suites.texts import call_on, records_of

    records = records_of(subject)
    records.append(dict(records[0]) | {"completions": MANY_WORDS})
    scores = call_on(subject, records)
    return [f"{record['completions'][:60]!r} gets {score!r}" for record, score in zip(records, scores, strict=True)]


def main() -> None:
    """Report the components listed on standard input."""
    found: dict[str, Any] = {}
    for name, kind, own, distribution, place, given in json.load(sys.stdin):
        module, _, attribute = place.partition(":")
        try:
            target = getattr(importlib.import_module(module), attribute)
            origin = Origin(distribution, "", module)
            found[name] = told(Subject(Component(kind=kind, name=own, target=target, origin=origin), given))
        except Exception as error:  # here it cannot be asked; why, other checks tell
            found[name] = {ERROR: f"{type(error).__name__}: {error}"}
    give(found)


if __name__ == "__main__":
    main()

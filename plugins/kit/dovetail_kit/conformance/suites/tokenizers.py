"""Claims about tokenizers: what a policy may draw, and what is the same once they are saved and loaded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ranges import plain
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.data import SUM, WORDS, texts_for, tokenizer_of
from dovetail_kit.conformance.suites.texts import short

DRAWN: Final = 40
LENGTH: Final = 12
MOST: Final = 2000
"""So many ids are decoded alone, of a vocabulary that may have many more."""
READ: Final = (SUM, WORDS, "MiXeD  case, naïve café\n")


@check("tokenizer", fix="Replace bytes that are no text, errors='replace', and pass over ids that stand for none.")
def decodes_whatever_is_drawn(subject: Subject) -> None:
    """Any ids of the vocabulary, in any order, are decoded to a text, and an end of the sequence to none.

    An untrained policy draws ids at random: half of a character, or an end in the middle. A reward would read it, and
    the run end, with an error.
    """
    tokenizer = tokenizer_of(subject)
    size = tokenizer.vocab_size
    rng = np.random.default_rng(0)
    alone = range(size) if size <= MOST else rng.choice(size, MOST, replace=False).tolist()
    drawn = [[number] for number in alone] + rng.integers(0, size, (DRAWN, LENGTH)).tolist()
    for ids in [[], [tokenizer.pad_id], *drawn]:
        try:
            text = tokenizer.decode(ids)
        except Exception as error:
            raise Failed(f"decode({ids}) raises {type(error).__name__}: {error}; vocab_size is {size}") from error
        if not isinstance(text, str):
            raise Failed(f"decode({ids}) is {text!r}, not a text")
    for end in tokenizer.eos_ids:
        if text := tokenizer.decode([end]):
            raise Failed(f"the end of the sequence, {end}, is decoded to {text!r}")


def _chosen(subject: Subject) -> Iterator[tuple[str, Any]]:
    """Yield the other choices of its hyperparameters that are words or switches."""
    for name, value in subject.params.items():
        hint = plain(subject.component.hints[name])
        words = get_args(hint) if get_origin(hint) is Literal else (True, False) if hint is bool else ()
        yield from ((name, word) for word in words if word != value and name not in subject.component.common)


@check("tokenizer", fix="Save what was chosen, and let load() take it from the file and not from the config.")
def saves_what_was_chosen(subject: Subject) -> None:
    """Made with another switch or word of its hyperparameters, saved, and loaded by one with the defaults, it encodes,
    decodes and renders as before.

    A run keeps the tokenizer that it began with, whatever the config says where it is resumed or its model is served.
    """
    tried = 0
    for name, word in _chosen(subject):
        try:
            tokenizer = subject.bind(**{name: word}).make([SUM, WORDS, *texts_for(subject)] * 100)
            before = _read(tokenizer)
        except (DovetailError, OSError, ValueError, Inapplicable):
            continue  # the choice does not go with the others
        tried += 1
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save(Path(folder))
            after = _read(subject.bind().load(Path(folder)))
        for what, ours in before.items():
            if ours != after[what]:
                later = short(repr(after[what]))
                raise Failed(f"with {name} = {word!r} {what} is {short(repr(ours))}, and {later} after loading")
    if not tried:
        raise Inapplicable("it has no hyperparameters that are words or switches")


def _read(tokenizer: Any) -> dict[str, Any]:
    """Return what a tokenizer makes of some texts, by what it is."""
    found: dict[str, Any] = {name: getattr(tokenizer, name) for name in ("vocab_size", "pad_id", "eos_ids")}
    for text in READ:
        try:
            ids = tokenizer.encode(text)
        except DovetailError:
            continue  # it has an alphabet
        found |= {f"encode({text!r})": ids, f"decode({ids})": tokenizer.decode(ids)}
    return found | {f"render({SUM!r})": tokenizer.render(SUM)}

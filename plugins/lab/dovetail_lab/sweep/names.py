"""What the parameters of a sweep are called where there is little room: in tables, in charts, in a line of a log."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Final

WIDTH: Final = 80
"""Columns of the terminal that most people begin with."""


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return each key with its shortest end, of whole words, that is not the end of another key too.

    >>> short_names(["train.lr", "policy_loss.ppo.epsilon_high", "policy_loss.gspo.epsilon_high"])
    {'train.lr': 'lr', 'policy_loss.ppo.epsilon_high': 'ppo.epsilon_high', 'policy_loss.gspo.epsilon_high': 'gspo.epsilon_high'}
    >>> list(short_names(["critic/optimizer.adamw.b2", "optimizer.adamw.b2"]).values())  # the second has no other end
    ['critic/optimizer.adamw.b2', 'optimizer.adamw.b2']
    """  # noqa: E501 - one line is what a dict prints
    ends = {key: _ends(key) for key in keys}
    found = {}
    for key, own in ends.items():
        others = {end for other, of_other in ends.items() if other != key for end in of_other}
        found[key] = next((end for end in own if end not in others), key)
    return found


def _ends(key: str) -> list[str]:
    """Return the ends of a key that begin with a whole word, the shortest first."""
    starts = [0, *(match.end() for match in re.finditer(r"[./]", key))]
    return [key[start:] for start in reversed(starts)]


def spelt_out(names: Mapping[str, str]) -> list[str]:
    """Return lines that say in full what is shortened in a table above them; none where nothing is.

    >>> spelt_out({"train.lr": "lr", "train.policy_loss": "policy_loss"})
    ['in full: train.lr, train.policy_loss']
    """
    full = [key for key, short in names.items() if short != key]
    text = f"in full: {', '.join(full)}"
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False) if full else []

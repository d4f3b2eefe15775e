"""Rewards and a tool that misbehave; workers import them from here."""

import os
import time
from pathlib import Path

from dovetail.registry import Component, Origin


def length(completions, group_ids):
    """Subtract the mean of the group, so that the result depends on the other completions of the group."""
    of = {group: [len(c) for c, g in zip(completions, group_ids, strict=True) if g == group] for group in group_ids}
    scores = [len(c) - sum(of[g]) / len(of[g]) for c, g in zip(completions, group_ids, strict=True)]
    return scores, {"process": [float(os.getpid())] * len(scores)}


def obey(completions):
    """Do what the completions say."""
    return [_obey(text) for text in completions]


def _obey(text):
    word, _, note = text.partition(" ")
    if word == "sleep":
        time.sleep(600)
    if word == "raise":
        raise KeyError("no such thing")
    if word == "end":
        os._exit(3)
    if word == "end_once" and not Path(note).exists():
        Path(note).touch()
        os._exit(3)
    return None if word == "abstain" else float(len(word))


def words(completions):
    return "good"


def short(completions):
    return []


def add(a: int, b: int) -> str:
    """Add, or end the process."""
    if a == 0:
        os._exit(3)
    return f"{a + b} {os.getpid()}"


def component(function, kind="reward"):
    """Return a component that may run in a pool."""
    from dovetail.kinds import Around

    origin = Origin("acme-rl", "1.0", "acme")
    common = {"pool": Around("pool")} if kind == "reward" else {}
    return Component(kind=kind, name=function.__name__, target=function, origin=origin, common=common)

"""What is claimed of every component, whatever its kind."""

from __future__ import annotations

import pickle
import re
import tempfile
from pathlib import Path
from typing import Any

import attrs

from dovetail.config import dump, load
from dovetail.config.resolved import defaults
from dovetail.config.schema import schema
from dovetail.config.types import Mismatch, fit, literal
from dovetail.errors import DovetailError, PluginError, listing, nearest
from dovetail.registry import REQUIRED, current
from dovetail_kit.conformance.check import Failed, check, checks
from dovetail_kit.conformance.claims import CLAIMS
from dovetail_kit.conformance.subject import Subject

FORMULAS = (
    "advantage",
    "correction",
    "kl",
    "loss_agg",
    "policy_loss",
    "reward_shaping",
    "schedule",
    "value_loss",
)
"""Kinds whose components are formulas."""


@check(mend="Change the default, or the annotation and the range in it.")
def defaults_are_valid(subject: Subject) -> None:
    """Every default fits its own annotation, and can be written in a configuration.

    A default that its own annotation refuses cannot be spelled out: the resolved configuration of a run would not load.
    """
    try:
        values = defaults(subject.component)
    except PluginError as error:
        raise Failed(str(error)) from None
    for name, hint in subject.component.hints.items():
        if hint is Any:
            raise Failed(f"hyperparameter '{name}' has no annotation, so that any value would be taken")
    if REQUIRED not in values.values():
        subject.bind()


@check(mend="Use hyperparameters that gin can write: numbers, texts, None, and tuples, lists and dicts of them.")
def resolved_dump(subject: Subject) -> None:
    """A configuration that chooses it, written out with every default, gives the same configuration back.

    A run could not be reproduced from the configuration in its folder.
    """
    component = subject.component
    allowed = schema(current())
    role = next((slot for slot in allowed.slots_of(component.kind) if slot.section in allowed.of_runs), None)
    written = {name: _literal(name, value) for name, value in subject.params.items()}
    if role is None:
        for name, value in subject.params.items():
            if fit(value, component.hints[name]) != value:
                raise Failed(f"'{name}' = {value!r} is read back as {fit(value, component.hints[name])!r}")
        return
    name = component.spelled
    chosen = f"{role.path}={[name]!r}" if role.many else f"{role.path}={name!r}"
    bindings = [f"{component.label}.{key}={value}" for key, value in written.items()]
    try:
        config = load(None, [chosen, *bindings], plan=False)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "config.gin"
            file.write_text(dump(config))
            again = load(file, plan=False)
    except DovetailError as error:
        raise Failed(str(error)) from None
    if again != config:
        raise Failed("the configuration read back is not the one written")


def _literal(name: str, value: Any) -> str:
    try:
        return literal(value)
    except Mismatch as error:
        raise Failed(f"hyperparameter '{name}': {error}") from None


@check(mend="Define the function or class at the top of its module, and keep open files and the like out of fields.")
def picklable(subject: Subject) -> None:
    """With its hyperparameters set, it goes through pickle and comes back equal.

    Sweeps and reward workers send components to other processes.
    """
    bound = subject.bind()
    try:
        again = pickle.loads(pickle.dumps(bound))
    except Exception as error:
        raise Failed(f"{type(error).__name__}: {error}") from None
    if attrs.has(type(bound)) and again != bound:
        raise Failed(f"{bound!r} came back as {again!r}")


@check(mend="Write what it does in a sentence, the formula, and a line for each parameter; see docs/concepts.md.")
def docstring(subject: Subject) -> None:
    """The docstring has a sentence, the formula where it is one, and every field and hyperparameter.

    `dovetail describe` and the pages of the documentation are made of it.
    """
    component = subject.component
    if not component.doc or not component.summary.rstrip().endswith((".", ":")):
        raise Failed(f"the first line is no sentence: {component.summary!r}")
    text = "\n".join(line for line in component.doc.split("\n") if not line.lstrip().startswith((">>>", "...")))
    if component.kind in FORMULAS and not re.search(r"[=←≤≥⇔~∝]|\bis\b", text):
        raise Failed("there is no formula in it")
    words = (*(component.reads if component.kind in (*FORMULAS, "field", "reward") else ()), *component.params)
    missing = [word for word in words if not re.search(rf"\b{re.escape(word)}\b", text)]
    if missing and not re.search(r"as (for|in) `\w+`", text):
        raise Failed(f"it does not speak of {listing(missing)}")


@check(mend="Take out what is not known, or correct its spelling; claims are listed in docs/conformance.md.")
def declarations(subject: Subject) -> None:
    """What it declares is known, and meant for its kind.

    A claim under a name that nobody reads is checked by nobody.
    """
    kind, declared = subject.component.kind, subject.declared
    known = {name for name, claim in CLAIMS.items() if not claim.kinds or kind in claim.kinds}
    for name in declared:
        if name not in known and kind in BUILT_IN:
            raise Failed(f"'{name}' is no claim of a {kind}.{nearest(name, known)} Claims: {listing(known)}")
    names = {each.name for each in checks(kind)}
    for name in declared.get("expected_failures", {}):
        if name not in names:
            raise Failed(f"expected_failures names '{name}', no check of a {kind}.{nearest(name, names)}")
    for name in declared.get("settings", {}):
        if name not in subject.component.params:
            raise Failed(
                f"settings names '{name}', no hyperparameter.{nearest(name, subject.component.params)}"
                f" Hyperparameters: {listing(subject.component.params)}"
            )


def _built_in() -> frozenset[str]:
    from dovetail.kinds import KINDS

    return frozenset(kind.name for kind in KINDS)


BUILT_IN = _built_in()
"""Kinds of which all claims are known; those that a plugin opens may have claims of their own."""

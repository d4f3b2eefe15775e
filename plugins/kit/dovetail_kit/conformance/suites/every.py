"""Claims about every component, whatever its kind."""

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
from dovetail.registry.compatibility import ENGINE
from dovetail_kit.conformance.check import Failed, check, checks
from dovetail_kit.conformance.claims import CLAIMS
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.pages import of_call

FORMULAS = (
    "advantage",
    "correction",
    "kl",
    "loss_agg",
    "loss_term",
    "policy_loss",
    "reward_shaping",
    "schedule",
    "value_loss",
)
"""Kinds whose components are formulas, which a docstring can write down."""
UNDERSTOOD = ("mask", "state")
"""Fields that are the same for all who read them, so that a docstring may leave them out."""
FORMULA = r"[=←≤≥⇔~∝∑∏√·×÷∈→↦≈≡²]|\bis\b|\w\(|\S [-+*/^] \S"


@check(doctor="warning", fix="Change the default, or the annotation and its range.")
def defaults_are_valid(subject: Subject) -> None:
    """Every hyperparameter has an annotation that its default fits, and every default can be written in a config.

    A run's resolved config spells out every default, and could not be loaded with one that its annotation refuses.
    """
    try:
        values = defaults(subject.component)
    except PluginError as error:
        raise Failed(str(error)) from None
    bare = [name for name, hint in subject.component.hints.items() if hint is Any]
    if bare:
        raise Failed(f"no annotation of {listing(bare)}: a config could set any value, and a float is not traced")
    if REQUIRED not in values.values():
        subject.bind()


@check(fix="Use hyperparameters that gin can write: numbers, texts, None, and tuples, lists and dicts of them.")
def resolved_dump(subject: Subject) -> None:
    """A config that chooses it, written out with every default, is read back as the same config.

    Otherwise a run could not be reproduced from the config in its folder.
    """
    component = subject.component
    allowed = schema(current())
    setting = next((slot for slot in allowed.slots_of(component.kind) if slot.section in allowed.of_runs), None)
    written = {name: _literal(name, value) for name, value in subject.params.items()}
    if setting is None:
        for name, value in subject.params.items():
            if fit(value, component.hints[name]) != value:
                raise Failed(f"'{name}' = {value!r} is read back as {fit(value, component.hints[name])!r}")
        return
    name = component.spelled
    chosen = f"{setting.path}={[name]!r}" if setting.many else f"{setting.path}={name!r}"
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
        raise Failed("the config that is read back is not the one that was written")


def _literal(name: str, value: Any) -> str:
    try:
        return literal(value)
    except Mismatch as error:
        raise Failed(f"hyperparameter '{name}': {error}") from None


@check(fix="Define the function or class at the top level of its module, and keep open files and the like out of it.")
def picklable(subject: Subject) -> None:
    """With its hyperparameters set, it can be pickled and comes back equal.

    Sweeps and reward workers send components to other processes.
    """
    bound = subject.bind()
    try:
        again = pickle.loads(pickle.dumps(bound))
    except Exception as error:
        raise Failed(f"{type(error).__name__}: {error}") from None
    if attrs.has(type(bound)) and again != bound:
        raise Failed(f"{bound!r} came back as {again!r}")


@check(
    doctor="warning",
    fix="Write a sentence on what it does, its formula, and a line for each parameter; those of a class stand in its"
    " `Args:`, and what it reads in `Reads:` or in the `Args:` of its `__call__`.",
)
def docstring(subject: Subject) -> None:
    """The docstring has a sentence, the formula if it is one, and every field and hyperparameter.

    `dovetail describe` and the pages of the documentation are made from it.
    """
    component = subject.component
    if not component.doc:
        raise Failed("it has no docstring, which is what `dovetail describe` prints")
    if not component.summary.rstrip().endswith((".", ":")):
        raise Failed(f"the first line of its docstring is not a sentence: {component.summary!r}")
    whole = f"{component.doc}\n{of_call(component.load())}"  # that of a class may say there what it reads
    text = "\n".join(line for line in whole.split("\n") if not line.lstrip().startswith((">>>", "...")))
    if component.kind in FORMULAS and not re.search(FORMULA, text):
        raise Failed("its docstring has no formula")
    reads = component.reads if component.kind in (*FORMULAS, "field", "process_reward", "reward") else ()
    own = [name for name in component.params if name not in component.common]  # the others are the kind's to explain
    wanted = [*(read for read in reads if read not in UNDERSTOOD), *own]
    missing = [word for word in wanted if not re.search(rf"\b{re.escape(word)}\b", text)]
    if missing and not re.search(r"as (for|in) `\w+`", text):
        raise Failed(f"its docstring does not mention {listing(missing)}")


@check(doctor="warning", fix="Correct the claim, or take it out; docs/conformance.md lists all of them.")
def declarations(subject: Subject) -> None:
    """Every claim that it makes is known, well formed, and applies to its kind and to what it reads.

    Nothing checks a claim under an unknown name, and no other check is carried out with one that is malformed.
    """
    component, kind = subject.component, subject.component.kind
    opened_by = current().kinds[kind].origin.distribution
    known = {name for name, claim in CLAIMS.items() if not claim.kinds or kind in claim.kinds}
    for name in subject.declared:
        if name not in known and opened_by == ENGINE:  # another plugin may have claims of its own
            raise Failed(f"'{name}' is not a claim of kind {kind}.{nearest(name, known)} Claims: {listing(known)}")
    for name, claimed in subject.declared.items():
        about = [each for each in checks(kind) if each.claim == name]
        needed = {read for each in about for read in each.reads if read not in component.reads}
        if claimed and about and not any({*each.reads} <= {*component.reads} for each in about):
            raise Failed(f"'{name}' says something about {listing(sorted(needed))}, which it does not read")
    names = {each.name for each in checks(kind)}
    for name in subject.declared.get("expected_failures", {}):
        if name not in names:
            raise Failed(f"expected_failures names '{name}', which is not a check of {kind}.{nearest(name, names)}")
    for name in subject.declared.get("excludes", ()):
        if name not in current().kinds:
            raise Failed(f"excludes names '{name}', which is not a kind.{nearest(name, current().kinds)}")

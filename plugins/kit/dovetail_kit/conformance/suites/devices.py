"""Claims about a component in a fresh process: its results on several devices, and the time to import it.

The process must be fresh because jax fixes the number of devices when it starts. One process answers for all components
that are checked together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np

from dovetail_kit.answers import taken
from dovetail_kit.conformance.case import ArrayCase, on_batch
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import Result, same_results
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.values import ARRAYS

ASKED_AGAIN = ("answer", "curriculum", "interaction", "process_reward", "reward", "sampler", "task", "tokenizer")
"""Kinds whose components are asked the same in a process in which texts have other hashes."""
SLOW_IMPORT_SECONDS = 3.0
"""Processor time for what a component's module imports beyond jax, flax and optax, which the engine imports anyway."""


def share_processes(subjects: list[Subject]) -> None:
    """Let one process answer for all of these subjects, of any distributions, instead of one each."""
    crowd: dict[Any, Any] = {"of": subjects}
    for subject in subjects:
        subject.crowd = crowd


@check(
    *ARRAYS,
    when=on_batch,
    slow=True,
    fix="Use operations on whole arrays, and neither name nor count devices.",
)
def sharded(subject: Subject) -> None:
    """With its rows on two devices it gives the same results as on one.

    A mean over the rows of each device, or a factor for the number of devices, is wrong on every mesh of more than one.
    """
    told = answers_of("sharded", subject).get(name_of(subject))
    if not told:
        raise Inapplicable("it cannot be called in a fresh process")
    if "error" in told:
        raise Failed(f"on two devices: {told['error']}")
    values = tuple(np.array(value) for value in told["values"])
    metrics, gradients = ({name: np.array(x) for name, x in told[key].items()} for key in ("metrics", "gradients"))
    case = ArrayCase.of(subject)
    fields = case.fields()
    same_results(Result(values, metrics, gradients), case.run(fields), "on two devices", mask=fields["mask"])


@check(slow=True, fix="Import heavy libraries in the function that needs them.")
def import_time(subject: Subject) -> None:
    """Its module imports quickly once jax is imported.

    Every process of a sweep, and every reward worker, imports it again.
    """
    seconds = answers_of("imports", subject).get(name_of(subject), 0.0)
    if seconds > SLOW_IMPORT_SECONDS:
        raise Failed(f"importing it takes {seconds:.1f} s of processor time")


def name_of(subject: Subject) -> str:
    """Return the full name of a component, as programs of several components print it."""
    return f"{subject.component.origin.distribution}/{subject.component.label}"


def answers_of(program: str, subject: Subject) -> dict[str, Any]:
    """Return what a program of `dovetail_kit.conformance` says about each component; it runs once for all of them.

    A component that ends the process leaves the others without an answer, so each distribution then has its own.

    Raises:
        Inapplicable: if the process of the component's distribution failed.
    """
    crowd = subject.crowd or {"of": [subject]}
    every, distribution = crowd["of"], subject.component.origin.distribution
    own = [each for each in every if each.component.origin.distribution == distribution]
    found = _once(program, crowd, program, every)
    if isinstance(found, Inapplicable) and len(own) < len(every):
        found = _once((program, distribution), crowd, program, own)
    if isinstance(found, Inapplicable):
        raise found
    return found


def _once(key: Any, crowd: dict[Any, Any], program: str, subjects: list[Subject]) -> dict[str, Any] | Inapplicable:
    if key not in crowd:
        crowd[key] = _run(program, subjects)
    return crowd[key]


def _run(program: str, subjects: list[Subject]) -> dict[str, Any] | Inapplicable:
    asked = []
    for subject in subjects:
        target, component = subject.component.load(), subject.component
        by_array = component.kind in ARRAYS and on_batch(component)
        if {"imports": True, "sharded": by_array, "again": component.kind in ASKED_AGAIN}[program]:
            place = f"{target.__module__}:{target.__qualname__}"
            origin = component.origin.distribution
            asked.append([name_of(subject), component.kind, component.name, origin, place, dict(subject.given)])
    flags = "--xla_force_host_platform_device_count=2"
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
        "PYTHONHASHSEED": "54321" if os.environ.get("PYTHONHASHSEED") == "12345" else "12345",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        [sys.executable, "-m", f"dovetail_kit.conformance.{program}"],
        input=json.dumps(asked, default=str),
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode or (found := taken(done.stdout)) is None:
        told = done.stderr.strip().splitlines()[-1:] or [f"it ended with status {done.returncode} and no answer"]
        return Inapplicable(f"a fresh process failed: {told[0]}")
    return found

"""The built-in components to check, with hyperparameters that need a test's files."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

from dovetail.registry import Component, current
from dovetail_kit.conformance.check import Check, applicable
from dovetail_kit.conformance.subject import Subject

HERE = Path(__file__).parent
DATA = "question,answer\n" + "".join(f'what is {i}?,"that\n#### {i}"\n' for i in range(60))
RUN_BY_PYTEST = ("examples_of_its_docstring",)
"""What `--doctest-modules` does for our own modules."""
ELSEWHERE = ("rollout",)
"""Kinds whose own tests run the same checks."""


@functools.cache
def table() -> str:
    """Return the path of a small file of questions and answers."""
    path = Path(tempfile.mkdtemp(prefix="dovetail-")) / "data.csv"
    path.write_text(DATA)
    return str(path)


@functools.cache
def place() -> str:
    """Return a folder for what is kept outside the folder of a run."""
    return tempfile.mkdtemp(prefix="dovetail-")


os.environ.setdefault("TRACKIO_DIR", f"{place()}/trackio")


def given(component: Component) -> dict[str, Any]:
    """Return hyperparameters of a component that have no default."""
    made = {
        "task.gsm8k": lambda: {"path": table()},
        "task.records": lambda: {"path": table(), "prompt_column": "question", "completion_column": "answer"},
        "reward.compute_score": lambda: {"path": str(HERE.parents[1] / "reward" / "reward" / "own_scores.py")},
        "reward.remote": lambda: {"url": "http://localhost:9"},
        "sink.mlflow": lambda: {"uri": f"sqlite:///{place()}/mlflow.db"},
        "model.decoder": lambda: {"width": 16, "layers": 2, "heads": 2, "kv_heads": 1, "init_std": 0.4},
    }
    return made.get(component.label, dict)()


@functools.lru_cache(maxsize=2)
def subject(kind: str, name: str, verl_compatible: bool) -> Subject:
    """Return a component to check; the most recent ones are cached together with their compiled functions."""
    component = current().get(kind, name)
    variant = {"verl_compatible": True} if verl_compatible else {}
    return Subject(component, given(component) | variant, crowd=_crowd())


@functools.cache
def _crowd() -> dict[str, Any]:
    return {"of": [Subject(component, given(component)) for component in _components()]}


def _components() -> list[Component]:
    built_in = [c for c in current().components() if c.origin.distribution == "dovetail"]
    return [component for component in built_in if component.kind not in ELSEWHERE]


def cases() -> list[tuple[Component, bool, Check]]:
    """Return every built-in component with every check that applies to it, including the variants of rewards."""
    found = []
    for component in _components():
        for variant in (False, True) if "verl_compatible" in component.params else (False,):
            found += [(component, variant, check) for check in applicable(component) if check.name not in RUN_BY_PYTEST]
    return found

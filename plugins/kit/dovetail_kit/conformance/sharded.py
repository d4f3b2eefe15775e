"""Call components with their rows on two devices; a program that `suites.devices` runs.

It reads a JSON list of [name, kind, component, distribution, 'module:attribute', hyperparameters], and writes for each
name its values, metrics and gradients as lists, or an error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dovetail.registry import Component, Origin
from dovetail_kit.answers import give
from dovetail_kit.conformance.batch import ROWS
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Inapplicable
from dovetail_kit.conformance.subject import Subject


def main() -> None:
    """Compute the components listed on standard input."""
    found = {}
    for name, kind, component, distribution, target, given in json.load(sys.stdin):
        origin = Origin(distribution, "", target.partition(":")[0])
        found[name] = compute(Subject(Component(kind=kind, name=component, target=target, origin=origin), given))
    give(found)


def compute(subject: Subject) -> dict[str, Any]:
    """Return the results of a component on its batch, or an `error`; empty if it cannot be called here."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("rows",))

    def place(value: Any) -> Any:
        cut = hasattr(value, "shape") and len(value.shape) > 0 and value.shape[0] == ROWS
        return jax.device_put(value, NamedSharding(mesh, PartitionSpec("rows") if cut else PartitionSpec()))

    try:
        case = ArrayCase.of(subject)
        results = jax.jit(case.pure)(jax.tree.map(place, case.fields()), subject.floats)
    except Inapplicable:
        return {}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"}
    values, metrics, gradients = jax.tree.map(lambda array: np.asarray(array).tolist(), results)
    return {"values": values, "metrics": metrics, "gradients": gradients}


if __name__ == "__main__":
    main()

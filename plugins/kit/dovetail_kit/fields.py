"""Which fields of the batch a component may read."""

from __future__ import annotations

from collections.abc import Set

from dovetail.plan.glossary import FIELDS, QUANTITY_READS
from dovetail.plan.planner import VERSIONS
from dovetail.registry import Component, Registry


def provided(component: Component, registry: Registry) -> Set[str]:
    """Return the names of the fields that a component may read.

    These are the engine's, those of components of kind `field`, and the latter under the policies that have their own:
    `old_entropy`. A `field` may also read what a forward pass offers, such as `logits`.
    """
    derived = registry.names("field")
    versions = {prefix + name for prefix in VERSIONS for name in derived}
    return {*FIELDS, *derived, *versions} | (QUANTITY_READS if component.kind == "field" else set())

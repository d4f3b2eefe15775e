"""Which fields of the batch a component may read."""

from __future__ import annotations

from collections.abc import Set

from dovetail.kinds import FIELDS
from dovetail.kinds.fields import HIDDEN, LOGITS
from dovetail.plan import is_quantity
from dovetail.plan.roles import REFERENCE, Quantity, logits_of, parse, spellings
from dovetail.registry import Component, Registry


def provided(component: Component, registry: Registry) -> Set[str]:
    """Return the names of the fields that a component may read in any run.

    These are the engine's, those that kinds write, and those of components of kind `field`, for the policy, the policy
    at collection and the reference. A `field` may also read what a forward pass offers, such as `logits`.
    """
    derived = registry.names("field")
    names = {name for each in derived for name in spellings(each, (REFERENCE,))}
    names |= {*FIELDS, *derived, *(field for kind in registry.kinds.values() for field in kind.writes)}
    return names | ({LOGITS, HIDDEN, logits_of(REFERENCE)} if component.kind == "field" else set())


def quantity_in(name: str, registry: Registry) -> Quantity | None:
    """Return what the name of a field says about a forward pass, of any role that a config may open: `teacher_logps`.

    None if it is not a quantity of a forward pass.
    """

    def known(field: str) -> bool:
        return registry.has("field", field) and is_quantity(registry.get("field", field))

    words = name.split("_")
    roles = ["_".join(words[:length]) for length in range(1, len(words))]
    return parse(name, [REFERENCE, *roles], known)

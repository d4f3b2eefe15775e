"""The schema of a configuration: its sections and settings, as the engine, the kinds and the plugins define them."""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from dovetail.config.settings import RoleMesh, RoleModel, chosen
from dovetail.errors import PluginError
from dovetail.registry import Registry

ROLES: Final = "roles"
"""The section that opens model roles: `roles.teacher = 'frozen'`. Any name that is not taken is a field of it."""

REFERENCE: Final = "reference"

MESH: Final = "mesh"
"""The section that says where the policy is; with a scope, `reference/mesh.first = 4`, where another role is."""

TAKEN: Final = frozenset({"policy", "old", "ref", "answer", "demo", "greedy", "rollout", "token", "row"})
"""Prefixes of field names that do not refer to a role."""


@attrs.frozen(kw_only=True)
class Slot:
    """A setting that chooses components, such as `train.policy_loss`.

    Attributes:
        path: section and name, `train.policy_loss`.
        kind: the kind of the components.
        scope: the gin scope in which their parameters can be set separately, as in `critic/optimizer.adamw.b2 = 0.95`.
        many: whether it holds a tuple of names rather than one.
    """

    path: str
    kind: str
    scope: str
    many: bool

    @property
    def section(self) -> str:
        """The section that the setting belongs to."""
        return self.path.partition(".")[0]


@attrs.frozen(kw_only=True, eq=False)
class Schema:
    """The sections of a configuration, by name.

    Attributes:
        sections: the settings of each section, an attrs class.
        where: sections that determine how and where a run happens, not what it computes; not part of the config id.
        experiments: sections of commands over many runs: a file may contain them, but they are not part of a run's
            configuration.
        slots: the settings that choose components, by path.
        roles: the model roles other than policy and critic.
        places: the scopes of `mesh`: roles and kinds that compute with a model and may have devices of their own.
    """

    sections: Mapping[str, type[Any]]
    where: frozenset[str]
    experiments: frozenset[str]
    slots: Mapping[str, Slot]
    roles: tuple[str, ...]
    places: tuple[str, ...]

    @property
    def of_runs(self) -> tuple[str, ...]:
        """The sections of a run's configuration."""
        return tuple(name for name in self.sections if name not in self.experiments)

    @functools.cached_property
    def scopes(self) -> tuple[str, ...]:
        """All scopes, in order."""
        return tuple(dict.fromkeys(slot.scope for slot in self.slots.values() if slot.scope))

    def slots_of(self, kind: str, scope: str = "") -> list[Slot]:
        """Return the settings of a kind that a binding with this scope applies to; all of them for an empty scope."""
        return [slot for slot in self.slots.values() if slot.kind == kind and scope in ("", slot.scope)]


def is_taken(role: str, registry: Registry) -> bool:
    """Tell whether a word already has another meaning, so that it cannot be the name of a model role."""
    return role == ROLES or role in TAKEN or role in registry.sections or role in registry.kinds


def schema(registry: Registry, roles: Iterable[str] = (), placed: Iterable[str] = ()) -> Schema:
    """Return the schema of a configuration that opens these model roles, and gives some scopes devices of their own.

    Raises:
        PluginError: if a plugin's section cannot be imported, or the setting of a kind does not exist or belongs to
            another kind.
    """
    opened = tuple(dict.fromkeys((REFERENCE, *roles)))
    sections = {name: section.load() for name, section in registry.sections.items()}
    sections["train"] = _with_kinds(sections["train"], registry)
    sections |= {role: _role_section(role) for role in opened}
    sections[ROLES] = _roles_section(opened)
    purposes = {name: section.purpose for name, section in registry.sections.items()}
    slots = _slots(sections)
    places = dict.fromkeys(slot.scope for slot in slots.values() if slot.kind == "model" and slot.scope)
    places |= dict.fromkeys(kind.name for kind in registry.kinds.values() if kind.placed)
    meshes = {f"{scope}/{MESH}": RoleMesh for scope in placed if scope in places}
    for kind in registry.kinds.values():
        if kind.path is not None and (kind.path not in slots or slots[kind.path].kind != kind.name):
            raise PluginError(
                f"kind '{kind.name}' of {kind.origin} is chosen by '{kind.path}', which is not a setting that chooses"
                " components of it; say setting='train.NAME', or open a section that has one (dovetail_sections)"
            )
    return Schema(
        sections=sections | meshes,
        where=frozenset((*(name for name, purpose in purposes.items() if purpose == "where"), *meshes)),
        experiments=frozenset(name for name, purpose in purposes.items() if purpose == "experiment"),
        slots=slots,
        roles=opened,
        places=tuple(places),
    )


def _with_kinds(base: type[Any], registry: Registry) -> type[Any]:
    """Add the settings of the kinds that are chosen there to the section `train`.

    Raises:
        PluginError: if a kind's setting has the name of one of the engine's settings.
    """
    chosen_there = []
    for kind in registry.kinds.values():
        section, _, name = (kind.path or "").partition(".")
        if section != "train":
            continue
        if name in attrs.fields_dict(base):
            raise PluginError(
                f"kind '{kind.name}' of {kind.origin} is chosen by '{kind.path}', which is a setting of the engine;"
                " say setting='train.OTHER'"
            )
        chosen_there.append((name, kind.name, kind.default, kind.many))
    return _made(base, tuple(chosen_there))


@functools.cache
def _made(base: type[Any], chosen_there: tuple[tuple[str, str, Any, bool], ...]) -> type[Any]:
    """Make a section's class. It is cached, because configurations are equal only if their sections share a class."""
    fields = {
        name: attrs.field(
            default=default,
            type=tuple[str, ...] if many else str if isinstance(default, str) else str | None,
            metadata={"kind": kind, "scope": ""},
        )
        for name, kind, default, many in chosen_there
    }
    return attrs.make_class(base.__name__, fields, bases=(base,), frozen=True, kw_only=True)


@functools.cache
def _role_section(role: str) -> type[Any]:
    fields = {name: chosen(name, None, scope=role) for name in attrs.fields_dict(RoleModel)}
    return attrs.make_class("RoleModel", _annotated(fields, str | None), frozen=True, kw_only=True)


@functools.cache
def _roles_section(roles: tuple[str, ...]) -> type[Any]:
    fields = {role: chosen("follower", "frozen", scope=role) for role in roles}
    return attrs.make_class("Roles", _annotated(fields, str), frozen=True, kw_only=True)


def _annotated(fields: Mapping[str, Any], hint: Any) -> dict[str, Any]:
    for field in fields.values():
        field.type = hint
    return dict(fields)


def _slots(sections: Mapping[str, type[Any]]) -> dict[str, Slot]:
    found = {}
    for section, cls in sections.items():
        for name, (hint, field) in fields_of(cls).items():
            if "kind" in field.metadata:
                path = f"{section}.{name}"
                many = typing.get_origin(hint) is tuple
                found[path] = Slot(
                    path=path, kind=field.metadata["kind"], scope=field.metadata.get("scope", ""), many=many
                )
    return found


@functools.lru_cache(maxsize=64)
def fields_of(cls: type[Any]) -> dict[str, tuple[Any, attrs.Attribute[Any]]]:
    """Return the annotation and the attrs attribute of each setting of a section."""
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if attrs.has(base):
            hints |= typing.get_type_hints(base, include_extras=True)
    return {field.name: (hints.get(field.name, field.type), field) for field in attrs.fields(cls)}

"""The registry: the only list of names."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from typing import Any

import attrs
from packaging.utils import canonicalize_name

from dovetail.errors import PluginError, UnknownNameError, listing, nearest
from dovetail.registry.component import Component, Origin, read_interface


@attrs.frozen
class Kind:
    """A family of interchangeable components."""

    name: str
    summary: str
    origin: Origin


@attrs.frozen
class Problem:
    """A plugin that could not be taken in, and why; `fatal` is false for one that works and should be mended."""

    distribution: str
    version: str
    reason: str
    fatal: bool = True


def normal(name: str) -> str:
    """Read `-` as `_`, in the name only: `acme-rl/token-mean` becomes `acme-rl/token_mean`."""
    owner, slash, last = name.rpartition("/")
    return f"{owner}{slash}{last.replace('-', '_')}"


@attrs.define
class Registry:
    """Kinds and the components registered under each, by name and by alias."""

    _kinds: dict[str, Kind] = attrs.field(factory=dict)
    _owners: dict[tuple[str, str], list[Component]] = attrs.field(factory=dict)
    problems: list[Problem] = attrs.field(factory=list)

    def add_kind(self, name: str, summary: str, origin: Origin) -> None:
        """Open a new kind.

        Raises:
            PluginError: if the name is taken or is no identifier.
        """
        _check_name(name, f"kind of {origin.distribution}")
        if name in self._kinds:
            raise PluginError(
                f"kind '{name}' of {origin.distribution} exists already:"
                f" {self._kinds[name].origin.distribution} opened it"
            )
        self._kinds[name] = Kind(name, summary, origin)

    def add(
        self,
        kind: str,
        name: str,
        target: str | Callable[..., Any],
        *,
        origin: Origin,
        aliases: Sequence[str] = (),
    ) -> Component:
        """Register a component.

        Args:
            kind: an open kind.
            name: a Python identifier; `-` is read as `_`.
            target: `'module:attribute'`, imported on first use, or the function or class itself.
            origin: who registers it.
            aliases: other names it answers to.

        Raises:
            PluginError: on an unknown kind, a name that is no identifier, a target of the wrong form, or a name that
            the
                same distribution has registered before.
        """
        owner = f"'{name}' of {origin.distribution}"
        if kind not in self._kinds:
            raise PluginError(
                f"component {owner} has the unknown kind '{kind}'.{nearest(kind, self._kinds)}"
                f" Kinds: {listing(self._kinds)}; the hook dovetail_kinds opens new ones"
            )
        if isinstance(target, str):
            if target.count(":") != 1:
                raise PluginError(f"{kind} {owner} has the target '{target}'; write 'package.module:attribute'")
        else:
            read_interface(target, f"{kind} {owner}")
        component = Component(
            kind=kind,
            name=normal(name),
            target=target,
            origin=origin,
            aliases=tuple(normal(a) for a in aliases),
        )
        words = (component.name, *component.aliases)
        for word in words:
            _check_name(word, f"{kind} of {origin.distribution}")
            holders = self._owners.get((kind, word), [])
            if any(other.origin.distribution == origin.distribution for other in holders):
                raise PluginError(f"{kind} '{word}' is registered twice by {origin.distribution}")
        for word in words:
            self._owners.setdefault((kind, word), []).append(component)
        return component

    def remove(self, distribution: str) -> None:
        """Forget all that a distribution has registered."""
        for key in list(self._owners):
            kept = [c for c in self._owners[key] if c.origin.distribution != distribution]
            self._owners[key] = kept
            if not kept:
                del self._owners[key]

    @property
    def kinds(self) -> dict[str, Kind]:
        """Open kinds by name."""
        return dict(sorted(self._kinds.items()))

    def components(self, kind: str | None = None) -> list[Component]:
        """All components, or those of one kind, each once, sorted by kind and name."""
        if kind is not None:
            self._check_kind(kind)
        found = {
            (c.kind, c.name, c.origin.distribution): c
            for (k, _), holders in self._owners.items()
            for c in holders
            if kind in (None, k)
        }
        return [found[key] for key in sorted(found)]

    def names(self, kind: str) -> tuple[str, ...]:
        """The names of a kind's components, sorted, without aliases."""
        return tuple(sorted({c.name for c in self.components(kind)}))

    def has(self, kind: str, name: str) -> bool:
        """Tell whether `get` would find the name, be it ambiguous."""
        owner, _, word = normal(name).rpartition("/")
        holders = self._owners.get((kind, word), [])
        return any(not owner or _same(c.origin.distribution, owner) for c in holders)

    def get(self, kind: str, name: str) -> Component:
        """Return the component of that kind and name, alias, or `distribution/name`.

        Raises:
            UnknownNameError: if there is none (with the nearest spelling), or if two distributions own the bare name.
        """
        self._check_kind(kind)
        owner, _, word = normal(name).rpartition("/")
        holders = self._owners.get((kind, word), [])
        if owner:
            holders = [c for c in holders if _same(c.origin.distribution, owner)]
        if not holders:
            raise self._unknown(kind, name)
        if len(holders) > 1:
            raise UnknownNameError(
                f"{kind} '{name}' is registered by {' and '.join(str(c.origin) for c in holders)};"
                f" say which: {' or '.join(repr(c.qualified_name) for c in holders)}"
            )
        return holders[0]

    def _unknown(self, kind: str, name: str) -> UnknownNameError:
        words = [word for k, word in self._owners if k == kind]
        elsewhere = sorted(k for k, word in self._owners if word == normal(name))
        hint = nearest(normal(name), words) or (f" It is a {elsewhere[0]}." if elsewhere else "")
        broken = "".join(f" Broken plugin {p.distribution}: {p.reason}." for p in self.problems if p.fatal)
        return UnknownNameError(f"unknown {kind} '{name}'.{hint} Known: {listing(self.names(kind))}.{broken}")

    def _check_kind(self, kind: str) -> None:
        if kind not in self._kinds:
            raise UnknownNameError(f"unknown kind '{kind}'.{nearest(kind, self._kinds)} Known: {listing(self._kinds)}")


def _same(distribution: str, other: str) -> bool:
    return canonicalize_name(distribution) == canonicalize_name(other)


def _check_name(name: str, owner: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise PluginError(f"{owner}: '{name}' is no Python identifier; use letters, digits and '_'")

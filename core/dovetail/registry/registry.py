"""The registry: the single list of kinds, components and sections."""

from __future__ import annotations

import importlib
import keyword
from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs
from packaging.utils import canonicalize_name

from dovetail.errors import PluginError, UnknownNameError, listing, nearest
from dovetail.kinds import KINDS, Kind
from dovetail.registry.component import Component, Origin, read_interface
from dovetail.registry.disabled import DISABLE, disabled
from dovetail.registry.places import raised_at
from dovetail.registry.renamed import Renamed


class TakenError(PluginError):
    """The name belongs to another distribution, in a kind in which every name has a single owner."""


@attrs.frozen(kw_only=True)
class Section:
    """A section of a config file that a plugin opens.

    Attributes:
        name: the part of a setting's name before the dot.
        target: an attrs class with the settings, or its location, `module:Class`.
        purpose: `what` if its settings determine what a run computes, and so are part of the config id; `where` if they
            determine where and how it runs; `experiment` if they belong to a command over many runs.
        origin: the distribution that opened it.
    """

    name: str
    target: str | type[Any]
    purpose: Literal["what", "where", "experiment"] = "what"
    origin: Origin

    def load(self) -> type[Any]:
        """Import and return the class of the settings.

        Raises:
            PluginError: if the import fails or it is not an attrs class; the message names the distribution.
        """
        owner = f"section '{self.name}' of {self.origin.distribution} {self.origin.version}"
        settings = self.target
        if isinstance(settings, str):
            module, _, attribute = settings.partition(":")
            try:
                settings = getattr(importlib.import_module(module), attribute)
            except (Exception, SystemExit) as error:
                raise PluginError(
                    f"{owner} cannot be imported from '{self.target}': {type(error).__name__}:"
                    f" {error}{raised_at(error)}"
                ) from error
        if not (isinstance(settings, type) and attrs.has(settings)):
            raise PluginError(f"{owner} has the settings {settings!r}; write a class with @attrs.frozen(kw_only=True)")
        return settings


@attrs.frozen
class Problem:
    """A problem with a plugin.

    Attributes:
        distribution: of the plugin.
        version: of the plugin.
        reason: what is wrong, in a sentence.
        fatal: whether the plugin could not be loaded; false if it works but should be fixed.
        word: the problem in one word: `broken`, `incompatible`, `slow`, `intrusive` or `incomplete`.
    """

    distribution: str
    version: str
    reason: str
    fatal: bool = True
    word: str = "broken"

    def __str__(self) -> str:
        return f"{self.word} plugin {self.distribution} {self.version}: {self.reason}"


_ROLE_SECTIONS = ("roles", "reference")


def normal(name: str) -> str:
    """Replace `-` by `_` in a component's name, but not in its owner's.

    >>> normal("acme-rl/token-mean")
    'acme-rl/token_mean'
    """
    owner, slash, last = name.rpartition("/")
    return f"{owner}{slash}{last.replace('-', '_')}"


@attrs.define
class Registry:
    """Kinds and the components registered under each, by name and by alias."""

    _kinds: dict[str, Kind] = attrs.field(factory=dict)
    _owners: dict[tuple[str, str], list[Component]] = attrs.field(factory=dict)
    problems: list[Problem] = attrs.field(factory=list)
    sections: dict[str, Section] = attrs.field(factory=dict)

    def add_kind(self, kind: Kind, origin: Origin) -> None:
        """Open a new kind.

        Raises:
            PluginError: if the name is taken or is not an identifier, or the record is inconsistent.
        """
        name = kind.name
        _check_name(name, f"kind of {origin.distribution}")
        if name in self._kinds:
            raise PluginError(
                f"kind '{name}' of {origin.distribution} exists already:"
                f" {self._kinds[name].origin.distribution} opened it; register components of it, or take another name"
            )
        self._check_no_section(name, f"kind '{name}' of {origin.distribution}")
        kind.check(own=kind in KINDS)
        for other in self._kinds.values():
            if kind.path is not None and kind.path == other.path:
                raise PluginError(
                    f"kind '{name}' of {origin.distribution} is chosen by '{kind.path}', which chooses the kind"
                    f" '{other.name}' of {other.origin.distribution}; say setting='train.OTHER'"
                )
        self._kinds[name] = attrs.evolve(kind, origin=origin)

    def add_section(self, section: Section) -> None:
        """Open a section of config files.

        Raises:
            PluginError: if the name is taken or is not an identifier.
        """
        owner = f"section '{section.name}' of {section.origin.distribution}"
        _check_name(section.name, f"section of {section.origin.distribution}")
        self._check_no_section(section.name, owner)
        if section.name in self._kinds:
            raise PluginError(f"{owner} has the name of a kind; take another name")
        self.sections[section.name] = section

    def _check_no_section(self, name: str, owner: str) -> None:
        if name in _ROLE_SECTIONS:
            raise PluginError(f"{owner} has the name of a section that the engine makes of model roles; take another")
        if name in self.sections:
            other = self.sections[name].origin.distribution
            raise PluginError(f"{owner} exists already as a section: {other} opened it; take another name")

    def add(
        self,
        kind: str,
        name: str,
        target: str | Callable[..., Any],
        *,
        origin: Origin,
        aliases: Sequence[str] = (),
        renamed: Sequence[Renamed] = (),
    ) -> Component:
        """Register a component.

        Args:
            kind: an open kind.
            name: a Python identifier; `-` is read as `_`.
            target: `'module:attribute'`, imported on first use, or the function or class itself.
            origin: the distribution that registers it.
            aliases: other names for it.
            renamed: former names of it or of its hyperparameters.

        Raises:
            PluginError: on an unknown kind, a name that is not an identifier, a target of the wrong form, or a name
                that is taken: by the same distribution or, in an exclusive kind, by any.
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
            renamed=tuple(renamed),
            common=self._kinds[kind].parameters,
        )
        for each in component.renamed:
            each.check(f"{kind} {owner}")
        words = (component.name, *component.aliases, *component.old_names)
        for index, word in enumerate(words):
            self._check_free(kind, word, origin)
            if word in words[:index]:
                raise PluginError(f"{kind} {owner} has '{word}' twice among its name, aliases and old names; drop one")
        for word in words:
            self._owners.setdefault((kind, word), []).append(component)
        return component

    def _check_free(self, kind: str, word: str, origin: Origin) -> None:
        _check_name(word, f"{kind} of {origin.distribution}")
        if word in self._kinds[kind].reserved:
            raise PluginError(
                f"{kind} '{word}' of {origin.distribution} has the name of one that the engine provides itself, and"
                " would never be used; take another name"
            )
        for other in self._owners.get((kind, word), []):
            if other.origin.distribution == origin.distribution:
                raise PluginError(
                    f"{kind} '{word}' is registered twice by {origin.distribution}, for '{other.target}' too; give one"
                    " of them another name"
                )
            if self._kinds[kind].exclusive:
                raise TakenError(
                    f"{kind} '{word}' of {origin.distribution} exists already: {other.origin} has it, and its readers"
                    " could not say which of the two they mean; take another name"
                )

    def remove(self, distribution: str) -> None:
        """Remove everything that a distribution has registered, except for kinds that have components of others."""
        self.sections = {n: s for n, s in self.sections.items() if s.origin.distribution != distribution}
        for key in list(self._owners):
            kept = [c for c in self._owners[key] if c.origin.distribution != distribution]
            self._owners[key] = kept
            if not kept:
                del self._owners[key]
        used = {kind for kind, _ in self._owners}
        self._kinds = {n: k for n, k in self._kinds.items() if n in used or k.origin.distribution != distribution}

    @property
    def kinds(self) -> dict[str, Kind]:
        """Open kinds by name."""
        return dict(sorted(self._kinds.items()))

    def components(self, kind: str | None = None) -> list[Component]:
        """Return all components, or those of one kind, each once, sorted by kind and name."""
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
        """Return the names of a kind's components, sorted, without aliases."""
        return tuple(sorted({c.name for c in self.components(kind)}))

    def has(self, kind: str, name: str) -> bool:
        """Tell whether a name is registered, even if it is ambiguous."""
        return bool(self._holders(kind, name)[1])

    def get(self, kind: str, name: str, *, prefer: Sequence[str] = ()) -> Component:
        """Return the component of that kind and name, alias, or `distribution/name`.

        If several distributions own a bare name, the first one listed in `prefer` wins.

        Raises:
            UnknownNameError: if there is no such component (with the nearest spelling), or if several distributions own
                the bare name and none of them is preferred.
        """
        self._check_kind(kind)
        word, holders = self._holders(kind, name)
        preferred = [c for owner in prefer for c in holders if _same(c.origin.distribution, owner)]
        holders = preferred[:1] or holders
        if not holders:
            raise self._unknown(kind, name)
        if len(holders) > 1:
            raise UnknownNameError(
                f"{kind} '{name}' is registered by {' and '.join(str(c.origin) for c in holders)};"
                f" say which: {' or '.join(repr(c.qualified_name) for c in holders)}"
            )
        (component,) = holders
        if _is_gone(component, word):
            raise UnknownNameError(self.notice(kind, name))
        return component

    def _holders(self, kind: str, name: str) -> tuple[str, list[Component]]:
        """Return a name without its owner, and the components it may refer to.

        An old name that its owner no longer accepts counts only if no other component has the name.
        """
        owner, _, word = normal(name).rpartition("/")
        holders = [c for c in self._owners.get((kind, word), []) if not owner or _same(c.origin.distribution, owner)]
        return word, [c for c in holders if not _is_gone(c, word)] or holders

    def notice(self, kind: str, name: str) -> str:
        """Return a notice about an old name; empty for a current name, and for one that is ambiguous or unknown."""
        word, holders = self._holders(kind, name)
        if len(holders) != 1 or word not in holders[0].old_names:
            return ""
        (component,) = holders
        origin = component.origin
        what = f"{kind} '{word}' of {origin.distribution} {origin.version}"
        return component.old_names[word].say(what, component.name, origin.version)

    def _unknown(self, kind: str, name: str) -> UnknownNameError:
        words = [word for k, word in self._owners if k == kind]
        last = normal(name).rpartition("/")[2]
        elsewhere = sorted(k for k, word in self._owners if word == last)
        hint = nearest(last, words) or (f" It is a {elsewhere[0]}." if elsewhere else "")
        owner = name.rpartition("/")[0]
        broken = self.broken(owner)
        owners = {c.origin.distribution for c in self.components()}
        switched_off = [each for each in disabled() if not owner or _same(each, owner)]
        if switched_off:
            broken += f" {DISABLE} switches off {listing(switched_off)}."
        elif owner and not broken and not any(_same(each, owner) for each in owners):
            hint = f" No plugin '{owner}' is installed.{nearest(owner, owners)} Plugins: {listing(owners)}."
        return UnknownNameError(f"unknown {kind} '{name}'.{hint} Known: {listing(self.names(kind))}.{broken}")

    def _check_kind(self, kind: str) -> None:
        if kind not in self._kinds:
            hint = nearest(kind, self._kinds)
            raise UnknownNameError(f"unknown kind '{kind}'.{hint} Known: {listing(self._kinds)}{self.broken()}")

    def broken(self, owner: str = "") -> str:
        """List the plugins that could not be loaded, which may own a missing name; only that of `owner`, if given."""
        broken = [str(p) for p in self.problems if p.fatal and (not owner or _same(p.distribution, owner))]
        return "".join(f" {text[0].upper()}{text[1:]}." for text in broken)


def _is_gone(component: Component, word: str) -> bool:
    """Whether a word is an old name that the installed version of a component's distribution no longer accepts."""
    old = component.old_names.get(word)
    return old is not None and old.is_removed(component.origin.version)


def _same(distribution: str, other: str) -> bool:
    return canonicalize_name(distribution) == canonicalize_name(other)


def _check_name(name: str, owner: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise PluginError(f"{owner}: '{name}' is not a Python identifier; use letters, digits and '_'")

"""Find out what a word of a config means: a setting, a section, a kind, a component, or a parameter of one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Final

from dovetail.config.schema import schema
from dovetail.config.types import describe as allowed
from dovetail.errors import DovetailWarning, UnknownNameError, nearest
from dovetail.registry import REQUIRED, Component, Registry
from dovetail_kit.conformance.claims import CLAIMS
from dovetail_kit.contract import contract
from dovetail_kit.pages import claims_of, meanings
from dovetail_kit.peers import PEERS
from dovetail_kit.settings import Setting, sections, settings

SHOWN: Final = 20
"""The number of hits that are printed."""


def found(registry: Registry, word: str, name: str | None = None) -> str:
    """Return what is known about a word, or a component of a kind.

    Raises:
        UnknownNameError: if there is no such thing.
    """
    if name is not None and word in registry.kinds:
        return component(registry, word, name)
    head, *rest = (word if name is None else f"{word}.{name}").split(".")
    if head in (known := sections(registry)):
        return _section(registry, head, ".".join(rest), known[head])
    if head in registry.kinds:
        return _kind(registry, head) if not rest else _part(registry, head, *rest)
    if name is not None or rest:
        raise UnknownNameError(f"no section or kind '{head}'.{nearest(head, (*known, *registry.kinds))}{_advice(word)}")
    homes = [kind for kind in registry.kinds if registry.has(kind, word)]
    if not homes:
        names = (each.name for each in registry.components())
        paths = (f"{section}.{each}" for section in known for each in _names(registry, section))
        every = (*known, *registry.kinds, *names, *paths)
        raise UnknownNameError(f"no setting, section, kind or component '{word}'.{nearest(word, every)}{_advice(word)}")
    return "\n\n".join(component(registry, kind, word) for kind in homes)


def component(registry: Registry, kind: str, name: str) -> str:
    """Return a component's docstring, what it reads, its parameters, its aliases and old names, and its origin."""
    found = registry.get(kind, name)
    notice = registry.notice(kind, name)
    if notice:
        warnings.warn(notice, DovetailWarning, stacklevel=1)
    lines = [f"{found.label}\n", f"{found.doc}\n", f"reads:   {', '.join(found.reads) or '(nothing)'}"]
    for index, parameter in enumerate(found.params):
        lines.append(f"{'params:  ' if index == 0 else '         '}{_parameter(found, parameter)}")
    if claimed := claims_of(found):
        lines.append(f"claims:  {', '.join(claimed)}")
    if found.aliases:
        lines.append(f"aliases: {', '.join(found.aliases)}")
    for old in found.renamed:
        new = old.to or found.name
        lines.append(f"was:     {old.old}, called {new} since {old.since} and refused from {old.removed_in} on")
    return "\n".join([*lines, f"origin:  {found.origin}"])


def hits(registry: Registry, words: Sequence[str]) -> list[str]:
    """Return a line for each setting and component that all words occur in; names first."""
    wanted = [part for word in words for part in _plain(word).split()]
    if not wanted:
        return []
    scored = []
    for name, peers, text in _entries(registry):
        plain, also, told = _plain(name), _plain(peers), _plain(text)
        if all(part in f"{plain} {also} {told}" for part in wanted):
            score = sum(3 * (part in plain.split()) + 2 * (part in also.split()) + (part in plain) for part in wanted)
            exact = any(_plain(" ".join(words)) == _plain(peer) for peer in peers.split())
            scored.append((-score - 10 * exact, len(scored), f"{name:34}  {text.partition('. ')[0].rstrip('.')}"))
    lines = [line for _, _, line in sorted(scored)]
    more = [f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return lines[:SHOWN] + more


def _section(registry: Registry, section: str, name: str, text: str) -> str:
    every = list(settings(registry, section))
    if not name:
        return "\n".join([f"{section}\n", f"{text}\n", *map(_line, every)])
    path = f"{section}.{name}"
    if path not in (paths := [each.path for each in every]):
        raise UnknownNameError(f"no setting '{path}'.{nearest(name, _names(registry, section))}{_advice(name)}")
    setting = every[paths.index(path)]
    lines = [f"{path} = {setting.default}  ({setting.allowed})\n", setting.meaning]
    if setting.kind:
        lines.append(f"\none of `dovetail names {setting.kind}`: {', '.join(registry.names(setting.kind))}")
    return "\n".join(lines)


def _kind(registry: Registry, kind: str) -> str:
    slots = [slot.path for slot in schema(registry).slots_of(kind)]
    lines = [f"{kind}\n", f"{registry.kinds[kind].summary}"]
    lines += [f"chosen by {' or '.join(slots)}"] if slots else []
    lines += ["", *asked] if (asked := contract(registry.kinds[kind])) else []
    lines += ["", *_claims(kind)]
    return "\n".join([*lines, "", *(f"{each.name:34}  {each.summary}" for each in registry.components(kind))])


def _claims(kind: str) -> list[str]:
    """Return the claims that a component of a kind may make, and the names of those that any may make."""
    own = [f"    {name:22}  {claim.meaning}" for name, claim in CLAIMS.items() if kind in claim.kinds]
    common = ", ".join(name for name, claim in CLAIMS.items() if not claim.kinds)
    where = "see docs/conformance.md#claims"
    if not own:
        return [f"what it may claim, with @dovetail.declares, as any kind may: {common} ({where})"]
    return ["what it may claim, with @dovetail.declares:", "", *own, f"    as any kind may: {common} ({where})"]


def _part(registry: Registry, kind: str, name: str, *parameter: str) -> str:
    if not parameter:
        return component(registry, kind, name)
    found = registry.get(kind, name)
    key = ".".join(parameter)
    if key not in found.params:
        raise UnknownNameError(f"{found.label} has no parameter '{key}'.{nearest(key, found.params)}{_advice(key)}")
    told = meanings(found).get(key, "")
    return f"{found.label}.{_parameter(found, key)}\n\n{told or f'see `dovetail describe {kind} {name}`'}"


def _parameter(found: Component, name: str) -> str:
    default = found.params[name]
    shown = "(required)" if default is REQUIRED else f"= {default!r}"
    compile_time = "  [compile-time]" if name in found.static else ""
    return f"{name} {shown}  ({allowed(found.hints[name])}){compile_time}"


def _entries(registry: Registry) -> Iterator[tuple[str, str, str]]:
    """Yield settings, components and parameters: the name, words of peers, and a text."""
    for section in sections(registry):
        for setting in settings(registry, section):
            yield setting.path, PEERS.get(setting.path, ""), setting.meaning
    for each in registry.components():
        yield each.label, " ".join(each.aliases), each.summary
        told = meanings(each)
        for parameter in each.params:
            name = f"{each.label}.{parameter}"
            yield name, PEERS.get(name, ""), told.get(parameter, "")


def _names(registry: Registry, section: str) -> list[str]:
    return [each.path.partition(".")[2] for each in settings(registry, section)]


def _line(setting: Setting) -> str:
    return f"{f'{setting.path} = {setting.default}':40}  {setting.meaning}"


def _plain(text: str) -> str:
    """Return words in lower case and one spelling, without what separates the parts of names.

    >>> _plain("train.max_grad_norm"), _plain("Optimisation"), _plain("normalised noise")
    ('train max grad norm', 'optimization', 'normalized noise')
    """
    words = re.sub(r"[\W_]+", " ", text.lower()).strip()
    return re.sub(r"is(?=ation)|(?<=al|im)is(?=e|ing)", "iz", words)


def _advice(word: str) -> str:
    plain = " ".join(re.findall(r"[^\W_]+", word.lower()))
    return f" `dovetail search {plain}` looks for words." if plain else ""

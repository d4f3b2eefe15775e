"""Pages about components, made from their docstrings: for Dovetail's own documentation, and for a plugin's."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from dovetail.config.types import describe
from dovetail.errors import UnknownNameError, listing, nearest
from dovetail.kinds import FIELDS, Kind
from dovetail.registry import REQUIRED, Component, Registry
from dovetail.registry.compatibility import owner_of
from dovetail.run.files import make_folder
from dovetail_kit.contract import contract

COMMON = {
    "coef": "what the result is multiplied by",
    "pool": "where it runs: `processes`, `ray`, or None for the trainer's process",
    "scheduled": "whether `train.schedule` multiplies it, too",
}
"""Descriptions of the hyperparameters that the engine adds to every component of a kind."""
SHORT = 40
"""Characters of a claim's value that is shown."""
SECTIONS = ("Args", "Reads", "Attributes", "Returns", "Raises", "Departures")


def write_pages(distribution: str, registry: Registry, folder: Path) -> list[Path]:
    """Write `KIND.md` for each kind that a distribution has components of; return the files.

    Raises:
        UnknownNameError: if it has none.
    """
    owners = sorted({component.origin.distribution for component in registry.components()})
    asked = canonicalize_name(owner_of(distribution))
    own = [each for each in registry.components() if canonicalize_name(each.origin.distribution) == asked]
    if not own:
        raise UnknownNameError(
            f"no plugin '{distribution}' has components.{nearest(distribution, owners)} Plugins: {listing(owners)}"
        )
    make_folder(folder)
    written = []
    for kind in sorted({component.kind for component in own}):
        file = folder / f"{kind}.md"
        members = [component for component in own if component.kind == kind]
        file.write_text(page(registry.kinds[kind], members), encoding="utf-8")
        written.append(file)
    return written


def page(kind: Kind, components: list[Component]) -> str:
    """Describe what a kind asks of its components, if it has a protocol, and some components of it."""
    lines = [f"# {kind.name}", "", f"{kind.summary[0].upper()}{kind.summary[1:]}.", ""]
    if kind.protocol:
        lines += ["What a component of this kind is:", "", "```text", *contract(kind), "```", ""]
    for component in components:
        body, example, sections = split(component.doc)
        lines += [f"## {component.name}", "", *markdown(body)]
        for title in ("Args", "Reads"):
            sections.pop(title, "")  # they are in the tables
        if arguments(sections.get("Attributes", "")).keys() <= component.params.keys():
            sections.pop("Attributes", "")  # they are in the table
        told = meanings(component)
        read = [(name, told.get(name) or meaning_of_field(name, kind)) for name in component.reads]
        if any(meaning for _, meaning in read):
            lines += ["| reads | |", "|---|---|"]
            lines += [f"| `{name}` | {cell(meaning)} |" for name, meaning in read] + [""]
        elif read:
            lines += [f"Reads {code(component.reads)}.", ""]
        if component.params:
            lines += ["| parameter | default | | |", "|---|---|---|---|"]
            lines += [parameter(component, name, told.get(name, "")) for name in component.params] + [""]
        for title, text in sections.items():
            lines += [f"**{title}**", "", *markdown(text)]
        lines += ["**Example**", "", *markdown(example)] if example else []
        also = f"; also called {code(component.aliases)}" if component.aliases else ""
        lines += [f"Claims {code(claimed)}.", ""] if (claimed := claims_of(component)) else []
        lines += [f"Defined in `{component.origin.module}`{also}.", ""]
    return "\n".join(lines)


def claims_of(component: Component) -> list[str]:
    """Return what a component claims, each with its value if that is short.

    >>> from dovetail import registry
    >>> claims_of(registry.current().get("kl", "k3"))
    ['non_negative', 'unbiased_value']
    """
    found = ((name, repr(value)) for name, value in component.declares.items())
    return [name if value == "True" or len(value) > SHORT else f"{name} = {value}" for name, value in found]


def meanings(component: Component) -> dict[str, str]:
    """Return the description of each argument and hyperparameter, including what a class inherits and the kind adds."""
    made = component.load()
    bases = inspect.getmro(made)[1:] if inspect.isclass(made) else ()
    docs = [inspect.cleandoc(vars(base).get("__doc__") or "") for base in reversed(bases)]
    docs += [of_call(made)]
    common = {name: COMMON.get(name, "of every component of this kind") for name in component.common}
    found: dict[str, str] = {}
    for doc in (*docs, component.doc):
        sections = split(doc)[2]
        for title in ("Attributes", "Args", "Reads"):
            found |= arguments(sections.get(title, ""))
    return found | common


def of_call(made: Any) -> str:
    """Return the docstring of a class's `__call__`, which may say what it reads; empty for a function."""
    return inspect.cleandoc(vars(made)["__call__"].__doc__ or "") if "__call__" in vars(made) else ""


def meaning_of_field(name: str, kind: Kind) -> str:
    """Return what a field of the batch is, for a component that does not say it itself; empty if it is no field."""
    return FIELDS[name].meaning if kind.reads == "fields" and name in FIELDS else ""


def parameter(component: Component, name: str, meaning: str) -> str:
    """Return the row of a table about a hyperparameter."""
    default = component.params[name]
    shown = "required" if default is REQUIRED else f"`{default!r}`"
    static = ", compile-time" if name in component.static else ""
    return f"| `{name}` | {cell(shown)} | {cell(describe(component.hints[name]))}{static} | {cell(meaning)} |"


def split(doc: str) -> tuple[str, str, dict[str, str]]:
    """Split a docstring into its text, the doctest at its end, and its sections by title."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):\n", doc, flags=re.MULTILINE)
    body, sections = parts[0], {}
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        inside, *outside = re.split(r"^(?=\S)", text, maxsplit=1, flags=re.MULTILINE)
        sections[title] = textwrap.dedent(inside).strip()
        body += "\n" + "".join(outside)
    body, *example = re.split(r"^(?=>>> )", body, maxsplit=1, flags=re.MULTILINE)
    return body, "".join(example), sections


def arguments(text: str) -> dict[str, str]:
    """Return the description of each name in a section `Args`; several names may share one: `low, high: the range`."""
    entries = re.split(r"^(\w+(?:, \w+)*): ", text, flags=re.MULTILINE)
    each = zip(entries[1::2], entries[2::2], strict=True)
    return {name: " ".join(told.split()) for names, told in each for name in names.split(", ")}


def markdown(text: str) -> Iterator[str]:
    """Yield the lines of a docstring's text as Markdown: equations and examples become blocks of code."""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        if block.startswith(">>> "):
            yield from ("```pycon", block, "```", "")
        elif block.startswith("    "):
            yield from ("```text", textwrap.dedent(block), "```", "")
        elif block.strip():
            yield from (prose(block), "")


def prose(text: str) -> str:
    """Escape text that looks like HTML."""
    return re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", text)


def cell(text: str) -> str:
    """Format a text as a table cell."""
    return prose(text).replace("|", "\\|")


def code(words: Iterable[str]) -> str:
    """Format words as code, separated by commas."""
    return ", ".join(f"`{word}`" for word in words)

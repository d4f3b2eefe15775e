"""Write the pages that are made from code: `python docs/generate.py`.

`docs/components/KIND.md` comes from the docstrings of the built-in components, `docs/cli.md` from the command line,
`docs/step.svg` and the tables between `<!-- NAME -->` and `<!-- end -->` from the engine's stages, kinds and fields.
"""

from __future__ import annotations

import argparse
import re
import runpy
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dovetail.config.types import describe
from dovetail.errors import PluginError
from dovetail.kinds import FIELDS, STAGES, Kind, Stage
from dovetail.registry import REQUIRED, Component, current

DOCS = Path(__file__).parent
PICTURE = runpy.run_path(str(DOCS / "step_picture.py"))
COMMON = {"coef": "what the result is multiplied by", "scheduled": "whether `train.schedule` multiplies it, too"}
"""What the hyperparameters say that the engine gives to every component of a kind."""
WITH_TABLES = ("glossary.md", "step.md", "what_a_plugin_can_do.md")
SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Departures")


def pages() -> dict[str, str]:
    """Return the text of every page by its path under `docs`."""
    registry = current()
    kinds = {kind.name: kind.summary for kind in registry.kinds.values()}
    built_in = {kind: [c for c in registry.components(kind) if c.origin.distribution == "dovetail"] for kind in kinds}
    built_in = {kind: components for kind, components in built_in.items() if components}
    found = {f"components/{kind}.md": page(kind, kinds[kind], components) for kind, components in built_in.items()}
    tables = {"fields": fields(), "stages": stages()}
    found |= {name: with_tables((DOCS / name).read_text(encoding="utf-8"), tables) for name in WITH_TABLES}
    return found | {"components/index.md": index(built_in), "cli.md": command_line(), "step.svg": PICTURE["picture"]()}


def with_tables(text: str, tables: Mapping[str, str]) -> str:
    """Return a page with its tables as they are now."""
    return re.sub(
        r"(<!-- (\w+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{tables[found[2]]}\n{found[3]}",
        text,
        flags=re.DOTALL,
    )


def fields() -> str:
    """Return the table of the engine's fields."""
    rows = [f"| `{name}` | {info.shape} | {info.stage} | {info.meaning} |" for name, info in FIELDS.items()]
    return "\n".join(["| field | shape | stage | meaning |", "|---|---|---|---|", *rows]) + "\n"


def stages() -> str:
    """Return the table of the stages: where each runs, what is called there, and what a plugin may call there."""
    lines = ["| stage | what happens | where | kinds of Dovetail | a kind of yours |", "|---|---|---|---|---|"]
    for stage in STAGES:
        where = PICTURE["LEVELS"][stage.level][0]
        kinds = ", ".join(f"`{kind}`" for kind in PICTURE["called_at"](stage))
        lines.append(f"| `{stage.name}` | {stage.summary} | {where} | {kinds} | {open_to(stage)} |")
    return "\n".join(lines) + "\n"


def open_to(stage: Stage) -> str:
    """Say what components of a plugin's own kind may do at a stage."""
    ways: dict[str, dict[str, Any]] = {
        "reads fields, writes fields": {"writes": ("own",)},
        "reads fields, adds to the loss (`term=True`)": {"term": True},
    }
    for said, options in ways.items():
        try:
            Kind(name="own", summary="", stage=stage.name, reads="fields", **options).check()
        except PluginError:
            continue
        return said
    return "components of the kinds at the left"


def index(components: Mapping[str, list[Component]]) -> str:
    """List the kinds with their components."""
    lines = ["# Components", "", "Generated from the docstrings by `python docs/generate.py`.", ""]
    lines += ["| kind | components |", "|---|---|"]
    for kind, members in components.items():
        links = ", ".join(f"[`{member.name}`]({kind}.md#{member.name.lower()})" for member in members)
        lines.append(f"| [{kind}]({kind}.md) | {links} |")
    return "\n".join(lines) + "\n"


def page(kind: str, summary: str, components: list[Component]) -> str:
    """Describe the components of one kind."""
    lines = [f"# {kind}", "", f"{summary[0].upper()}{summary[1:]}.", ""]
    for component in components:
        body, example, sections = split(component.doc)
        lines += [f"## {component.name}", "", *markdown(body)]
        told = arguments(sections.pop("Args", ""))
        if component.reads:
            lines += ["| reads | |", "|---|---|"]
            lines += [f"| `{name}` | {cell(told.get(name, ''))} |" for name in component.reads] + [""]
        if component.params:
            lines += ["| parameter | default | | |", "|---|---|---|---|"]
            told |= {name: COMMON.get(name, "of every component of this kind") for name in component.common}
            lines += [parameter(component, name, told.get(name, "")) for name in component.params] + [""]
        for title, text in sections.items():
            lines += [f"**{title}**", "", *markdown(text)]
        lines += ["**Example**", "", *markdown(example)] if example else []
        also = f"; also called {code(component.aliases)}" if component.aliases else ""
        lines += [f"Defined in `{component.origin.module}`{also}.", ""]
    return "\n".join(lines)


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
    """Return what a section `Args` says about each name."""
    entries = re.split(r"^(\w+): ", text, flags=re.MULTILINE)
    return {name: " ".join(told.split()) for name, told in zip(entries[1::2], entries[2::2], strict=True)}


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
    """Keep what looks like HTML as text."""
    return re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", text)


def cell(text: str) -> str:
    """Return a text as a table's cell."""
    return prose(text).replace("|", "\\|")


def code(words: tuple[str, ...]) -> str:
    """Return words as code, separated by commas."""
    return ", ".join(f"`{word}`" for word in words)


def command_line() -> str:
    """Return the page about the commands."""
    from dovetail.cli import GROUPS
    from dovetail.cli.commands import collect, parser_of

    found = collect(GROUPS)
    found.members = {name: each for name, each in found.members.items() if each.owners == ("dovetail",)}
    lines = ["# Command line", "", "What `dovetail COMMAND --help` says; generated by `python docs/generate.py`.", ""]
    for command in commands(parser_of(found)):
        words = [shown(action) for action in command._get_positional_actions()]
        lines += [
            f"## {command.prog.removeprefix('dovetail ')}",
            "",
            "```text",
            " ".join([command.prog, *words]),
            "```",
        ]
        description = command.description or ""
        lines += ["", prose(description[:1].upper() + description[1:]), ""]
        tables: dict[str, list[str]] = {}
        for group in command._action_groups:
            own = group.title not in ("positional arguments", "options")
            rows = tables.setdefault(cell(group.title or "") if own else "", [])
            rows += [option(action) for action in group._group_actions if action.dest != "help"]
        for title, rows in tables.items():
            lines += [f"| argument | {title} |", "|---|---|", *rows, ""] if rows else []
    return "\n".join(lines)


def shown(action: argparse.Action) -> str:
    """Return how an argument's value is written; nothing for a switch."""
    value: Any = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if action.choices is not None:
        value = "|".join(map(str, action.choices))
    value = " ".join(value) if isinstance(value, tuple) else value
    if action.option_strings:
        return value
    return {"?": f"[{value}]", "*": f"[{value} ...]", "+": f"{value} ..."}.get(str(action.nargs), value)


def option(action: argparse.Action) -> str:
    """Return the row of a table about an argument."""
    names = [f"{name} {shown(action)}".strip() for name in action.option_strings] or [shown(action)]
    return f"| {cell(code(tuple(names)))} | {cell((action.help or '').replace('%%', '%'))} |"


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of every command that does something."""
    below: list[Any] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for each in dict.fromkeys(action.choices.values()):
            yield from commands(each)


def main() -> None:
    """Write the pages and remove those that are of no use any more."""
    (DOCS / "components").mkdir(exist_ok=True)
    wanted = pages()
    for old in (DOCS / "components").glob("*.md"):
        if f"components/{old.name}" not in wanted:
            old.unlink()
    for name, text in wanted.items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

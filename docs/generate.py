"""Write the pages that are made from code: `python docs/generate.py`.

`docs/components/KIND.md` comes from the docstrings of the built-in components, `docs/settings.md` from those of the
sections, `docs/cli.md` from the command line, `docs/notebook.ipynb` from `docs/notebooks.md`, `docs/step.svg` and the
tables between `<!-- NAME -->` and `<!-- end -->` from the engine's stages, kinds and fields, and
`docs/smollm2_arithmetic.svg` from a table of `docs/smollm2.md`.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dovetail import arrays
from dovetail.errors import PluginError
from dovetail.kinds import FIELDS, STAGES, Kind, Stage
from dovetail.registry import Component, current
from dovetail_kit.pages import cell, code, page, prose
from dovetail_kit.settings import settings_page

DOCS = Path(__file__).parent
PICTURE = runpy.run_path(str(DOCS / "step_picture.py"))
SMOLLM2 = runpy.run_path(str(DOCS / "smollm2_picture.py"))
STATUSES = """\
Exit statuses: 0, done; 1, failed, with one line that begins with `error: `; 2, the command line cannot be read; 128 +
N, stopped by signal N, that is 130 by Ctrl-C (SIGINT), 143 by SIGTERM and 129 by SIGHUP. A run that is stopped by any
of the three saves its state first, and the same command goes on from there; only a second Ctrl-C stops the saving
too. What `nohup` has set stays. Where nobody reads the output any more, as after `| head`, or a disk has no room for
it, a command still does all of its work (SIGPIPE is ignored); the lost output on a full disk is status 1. Commands
with further statuses say so below."""
WITH_TABLES = ("api.md", "glossary.md", "step.md", "what_a_plugin_can_do.md")


def pages() -> dict[str, str]:
    """Return the text of every page by its path under `docs`."""
    registry = current()
    built_in = {
        kind: [c for c in registry.components(kind) if c.origin.distribution == "dovetail"] for kind in registry.kinds
    }
    built_in = {kind: components for kind, components in built_in.items() if components}
    found = {f"components/{kind}.md": page(registry.kinds[kind], components) for kind, components in built_in.items()}
    tables = {"fields": fields(), "stages": stages(), "arrays": array_helpers()}
    found |= {name: with_tables((DOCS / name).read_text(encoding="utf-8"), tables) for name in WITH_TABLES}
    found |= {"components/index.md": index(built_in), "settings.md": settings_page(registry)}
    found |= {"notebook.ipynb": notebook((DOCS / "notebooks.md").read_text(encoding="utf-8"))}
    pictures = {"step.svg": PICTURE["picture"](), "smollm2_arithmetic.svg": SMOLLM2["picture"]()}
    return found | {"cli.md": command_line(), **pictures}


def notebook(text: str) -> str:
    """Return a page as a Jupyter notebook: its Python blocks are code, all else is markdown."""
    cells = []
    for index, part in enumerate(re.split(r"```python\n(.*?)```\n", text, flags=re.DOTALL)):
        content = part.strip("\n")
        is_code = index % 2 == 1
        own: dict[str, Any] = {"execution_count": None, "outputs": []} if is_code else {}
        if content:
            cell_type = "code" if is_code else "markdown"
            lines = content.splitlines(keepends=True)
            cells.append({"cell_type": cell_type, "id": f"cell-{index}", "metadata": {}, "source": lines, **own})
    about = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": about, "language_info": {"name": "python"}}
    made = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


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


def array_helpers() -> str:
    """Return the table of what `dovetail.arrays` has, with the attributes and methods of its classes."""
    lines = ["| helper | |", "|---|---|"]
    for name in arrays.__all__:
        helper = getattr(arrays, name)
        if inspect.isroutine(helper) or inspect.isclass(helper):
            told = cell((inspect.getdoc(helper) or "").partition("\n")[0])
            if inspect.isclass(helper):
                fields = list(inspect.signature(helper).parameters)
                methods = [each for each in vars(helper) if not each.startswith("_") and each not in fields]
                told += f" Attributes: {code(fields)}. Methods: {code(methods)}."
            lines.append(f"| `{name}` | {told} |")
    return "\n".join(lines) + "\n"


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
    return "only components of these kinds"


def index(components: Mapping[str, list[Component]]) -> str:
    """List the kinds with their components."""
    lines = ["# Components", "", "Generated from the docstrings by `python docs/generate.py`.", ""]
    lines += ["| kind | components |", "|---|---|"]
    for kind, members in components.items():
        links = ", ".join(f"[`{member.name}`]({kind}.md#{member.name.lower()})" for member in members)
        lines.append(f"| [{kind}]({kind}.md) | {links} |")
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """Return the page about the commands."""
    from dovetail.cli import GROUPS
    from dovetail.cli.commands import collect, parser_of

    found = collect(GROUPS)
    found.members = {name: each for name, each in found.members.items() if each.owners == ("dovetail",)}
    lines = ["# Command line", "", "What `dovetail COMMAND --help` says; generated by `python docs/generate.py`.", ""]
    lines += [STATUSES, ""]
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

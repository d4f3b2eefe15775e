"""Write `docs/components/KIND.md` from the docstrings of the built-in components: `python docs/generate.py`."""

from __future__ import annotations

from pathlib import Path

from dovetail.config.types import describe
from dovetail.registry import REQUIRED, Component, current

PAGES = Path(__file__).parent / "components"


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    registry = current()
    kinds = {kind.name: kind.summary for kind in registry.kinds.values()}
    built_in = {kind: [c for c in registry.components(kind) if c.origin.distribution == "dovetail"] for kind in kinds}
    found = {f"{kind}.md": page(kind, kinds[kind], components) for kind, components in built_in.items() if components}
    return found | {"index.md": index({kind: built_in[kind] for kind in kinds if built_in[kind]})}


def index(components: dict[str, list[Component]]) -> str:
    """List the kinds with their components."""
    lines = ["# Components", "", "Generated from the docstrings by `python docs/generate.py`.", ""]
    lines += ["| kind | components |", "|---|---|"]
    for kind, members in components.items():
        lines.append(f"| [{kind}]({kind}.md) | {', '.join(f'`{member.name}`' for member in members)} |")
    return "\n".join(lines) + "\n"


def page(kind: str, summary: str, components: list[Component]) -> str:
    """Describe the components of one kind."""
    lines = [f"# {kind}", "", f"{summary[0].upper()}{summary[1:]}.", ""]
    for component in components:
        lines += [f"## {component.name}", "", "```text", component.doc, "```", ""]
        lines += ["| | |", "|---|---|", f"| reads | {_code(component.reads)} |"]
        for name, default in component.params.items():
            shown = "required" if default is REQUIRED else f"`{default!r}`"
            cell = f"{shown}; {describe(component.hints[name])}".replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"| `{name}` | {cell}{', compile-time' if name in component.static else ''} |")
        if component.aliases:
            lines.append(f"| also called | {_code(component.aliases)} |")
        lines += [f"| defined in | `{component.origin.module}` |", ""]
    return "\n".join(lines)


def _code(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words) or "nothing"


def main() -> None:
    """Write the pages and remove those that are of no use any more."""
    PAGES.mkdir(exist_ok=True)
    wanted = pages()
    for old in PAGES.glob("*.md"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        (PAGES / name).write_text(text)


if __name__ == "__main__":
    main()

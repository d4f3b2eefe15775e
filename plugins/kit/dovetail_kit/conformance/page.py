"""The lists in `docs/conformance.md`, made from checks and claims: `python -m dovetail_kit.conformance.page FILE`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dovetail_kit.conformance.check import Check, checks
from dovetail_kit.conformance.claims import CLAIMS

BEGIN = "<!-- made by python -m dovetail_kit.conformance.page -->"


def page(text: str) -> str:
    """Return the page with its lists brought up to date, and the text before them unchanged."""
    return f"{text.partition(BEGIN)[0]}{BEGIN}\n\n{_claims()}\n{_checks()}"


def _claims() -> str:
    lines = ["## Claims", "", "| claim | kinds | meaning |", "|---|---|---|"]
    for name, claim in CLAIMS.items():
        lines.append(f"| `{name}` | {', '.join(claim.kinds) or 'any'} | {_cell(claim.meaning)} |")
    return "\n".join(lines) + "\n"


def _checks() -> str:
    families: dict[tuple[str, ...], list[Check]] = {}
    for check in checks():
        families.setdefault(check.kinds, []).append(check)
    shared = {kinds: family for kinds, family in families.items() if len(kinds) > 1}
    lines = ["## Checks", "", "### Every component", "", *_table(families[()]), ""]
    lines += ["### Several kinds", "", "| check | kinds | claim | if it fails |", "|---|---|---|---|"]
    for kinds in sorted(shared, key=lambda kinds: (-len(kinds), kinds)):
        lines += [_row(check, ", ".join(kinds)) for check in shared[kinds]]
    for kinds in sorted(kinds for kinds in families if len(kinds) == 1):
        lines += ["", f"### {kinds[0]}", "", *_table(families[kinds])]
    return "\n".join(lines) + "\n"


def _table(family: Sequence[Check]) -> list[str]:
    return ["| check | claim | if it fails |", "|---|---|---|", *map(_row, family)]


def _row(check: Check, *beside: str) -> str:
    failing = " ".join(filter(None, (check.meaning, check.fix)))
    cells = f"`{check.name}`{_condition(check)}", *beside, _cell(check.summary), _cell(failing)
    return f"| {' | '.join(cells)} |"


def _condition(check: Check) -> str:
    said = [f"if it declares `{check.claim}`"] if check.claim else []
    said += [f"unless it declares `{check.unless}`"] if check.unless else []
    said += [f"if it reads {', '.join(f'`{name}`' for name in check.reads)}"] if check.reads else []
    return f", {', '.join(said)}" if said else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Rewrite the lists of a page."""
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text()))


if __name__ == "__main__":
    main()

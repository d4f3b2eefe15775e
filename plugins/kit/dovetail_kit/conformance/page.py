"""The lists in `docs/conformance.md`, made from checks and claims: `python -m dovetail_kit.conformance.page FILE`."""

from __future__ import annotations

import sys
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
    lines = ["## Checks", ""]
    for kinds in sorted(families, key=lambda kinds: (len(kinds) > 0, -len(kinds), kinds)):
        lines += [
            f"### {', '.join(kinds) or 'Every component'}",
            "",
            "| check | claim | if it fails |",
            "|---|---|---|",
        ]
        for check in families[kinds]:
            failing = " ".join(filter(None, (check.meaning, check.fix)))
            lines.append(f"| `{check.name}`{_condition(check)} | {_cell(check.summary)} | {_cell(failing)} |")
        lines.append("")
    return "\n".join(lines)


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

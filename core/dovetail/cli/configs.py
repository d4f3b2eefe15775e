"""`dovetail explain` and `dovetail config`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from dovetail.config import config_id, load, render_diff, render_show, run_id
from dovetail.shipped import find


def show(config: str | None, overrides: Sequence[str]) -> int:
    """Print every value of a config and where it comes from."""
    print(render_show(load(find(config), overrides)))
    return 0


def diff(first: str, second: str) -> int:
    """Print the values in which two configs differ; status 1 if there are any."""
    text = render_diff(load(find(first)), load(find(second)))
    print(text or "no difference")
    return 1 if text else 0


def explain(config: str | None, overrides: Sequence[str]) -> int:
    """Print the plan of a config."""
    from dovetail.train.algorithm import make_plan

    loaded = load(find(config), overrides)
    plan = make_plan(loaded)
    console = Console(width=None)
    console.print(f"config {config_id(loaded)}   run {run_id(loaded)}", highlight=False)
    console.print(f"forward passes beside sampling and update: {', '.join(plan.forwards) or 'none'}", highlight=False)
    table = Table("field", "provided by", "origin", "read by", box=None, header_style="bold", pad_edge=False)
    for entry in plan.entries:
        table.add_row(entry.field, entry.provider, entry.origin, "\n".join(entry.readers))
    console.print(table)
    for unused in loaded.unused:
        console.print(f"not used: {unused}", highlight=False)
    return 0

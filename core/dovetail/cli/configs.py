"""`dovetail explain` and `dovetail config`."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.config import Config, config_id, difference, load, render_diff, render_show, run_id
from dovetail.shipped import find


def show(config: str | None, overrides: Sequence[str]) -> int:
    """Print every value of a config and where it comes from."""
    print(render_show(load(find(config), overrides)), end="")
    return 0


def diff(first: str, second: str) -> int:
    """Print the values in which two configs differ; status 1 if there are any."""
    configs = load(find(first)), load(find(second))
    print(render_diff(*configs), end="")
    return 1 if difference(*configs) else 0


def explain(config: str | None, overrides: Sequence[str]) -> int:
    """Print the plan of a config."""
    from dovetail.train.algorithm import make_plan

    loaded = load(find(config), overrides)
    plan = make_plan(loaded)
    print(f"config {config_id(loaded)}   run {run_id(loaded)}")
    print(f"forward passes beside sampling and update: {', '.join(plan.forwards) or 'none'}\n")
    rows = [("field", "provided by", "from", "read by")]
    rows += [(entry.field, entry.provider, entry.origin, ", ".join(entry.readers)) for entry in plan.entries]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, (*widths, 0), strict=True)).rstrip())
    print_notices(loaded)
    return 0


def print_notices(config: Config) -> None:
    """Say which bindings have no effect, and what is allowed and probably not meant."""
    from dovetail.train.algorithm import warnings

    for unused in config.unused:
        print(unused)
    for warning in warnings(config):
        print(f"warning: {warning}")

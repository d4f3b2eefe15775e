"""`dovetail plan`: estimate the cost of a step, without reading any weights."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

import attrs

from dovetail.cli.options import Commands, add_config


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "print the parameters, memory per device, tokens and operations of a step; needs no weights or data"
    command = commands.add_parser("plan", help=summary)
    add_config(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the plan."""
    from dovetail.config import load
    from dovetail.devices.cost import estimate
    from dovetail.shipped import find

    cost = estimate(load(find(options.config), options.overrides))
    if options.json:
        print(json.dumps(attrs.asdict(cost), indent=2))
        return 0
    print(f"parameters         {_short(cost.parameters, 1000):>12}   trained {_short(cost.trained, 1000)}")
    print(f"tokens per step    {cost.tokens:>12,}   sampled, at most")
    print(f"computed with      {cost.choice}")
    beside = {f"+ {name}": size for name, size in cost.moments.items()}
    _table("memory per device", cost.memory | beside, 1024, "iB", {"at most": cost.peak})
    _table("operations per step", cost.flops, 1000, "FLOP", {"sum": sum(cost.flops.values())})
    for note in cost.notes:
        print(f"note: {note}")
    return 0


def _table(title: str, rows: Mapping[str, float], base: int, unit: str, total: Mapping[str, float]) -> None:
    print(f"\n{title}")
    for name, value in {**rows, **total}.items():
        print(f"  {name:<32}{_short(value, base, unit):>14}")


def _short(value: float, base: int, unit: str = "") -> str:
    """Write a number with a suitable unit.

    >>> _short(1536, 1024, "iB"), _short(2_600_000_000, 1000)
    ('1.50 KiB', '2.60 G')
    """
    for prefix in ("", "K", "M", "G", "T", "P"):
        if value < base or prefix == "P":
            break
        value /= base
    return f"{value:.2f} {prefix}{unit}".strip() if prefix else f"{value:.0f} {unit.removeprefix('i')}".strip()

"""`dovetail plan`: estimate the cost of a step, without reading any weights."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from dovetail.cli.options import Commands, add_config

WIDEST: Final = 32
"""Devices that a drawing has columns for."""


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "print the parameters, memory per device, tokens and operations of a step; needs no weights or data"
    forecast = "What a recorded run would take with other settings is predicted by `dovetail simulate`."
    command = commands.add_parser("plan", help=summary, description=f"{summary}. {forecast}")
    add_config(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the plan."""
    from dovetail.config import load
    from dovetail.devices.presence import devices
    from dovetail.shipped import find
    from dovetail_memory.cost import estimate

    config = load(find(options.config), options.overrides)
    devices()  # what memory there is depends on them
    cost = estimate(config)
    if options.json:
        print(json.dumps(attrs.asdict(cost), indent=2))
        return 0
    print(f"parameters         {_short(cost.parameters, 1000):>12}   trained {_short(cost.trained, 1000)}")
    print(f"tokens per step    {cost.tokens:>12,}   sampled, at most")
    print(f"computed with      {cost.choice}")
    if len(cost.placement) > 1:
        print("\n" + "\n".join(drawn({each.devices: each.roles for each in cost.placement})))
    for each in cost.placement:
        beside = {f"+ {name}": size for name, size in each.moments.items()}
        where = "" if len(cost.placement) == 1 else f" of {numbers(each.devices)} ({', '.join(each.roles)})"
        _table(f"memory per device{where}", each.memory | beside, 1024, "iB", {"at most": each.peak})
    _table("operations per step", cost.flops, 1000, "FLOP", {"sum": sum(cost.flops.values())})
    for note in cost.notes:
        print(f"note: {note}")
    return 0


def drawn(placement: Mapping[tuple[int, ...], tuple[str, ...]]) -> list[str]:
    """Draw who is where, a row for each role and a column for each device; numbers instead where they are many.

    >>> print("\\n".join(drawn({(0, 1): ("policy", "rollout"), (2,): ("reference",)})))
    placement     0 1 2
      policy      # # .
      rollout     # # .
      reference   . . #
    """
    columns = sorted(number for devices in placement for number in devices)
    wide = max(len(str(columns[-1])), 1)
    roles = dict.fromkeys(role for each in placement.values() for role in each)
    drawable = len(columns) <= WIDEST
    lines = [f"{'placement':<14}" + " ".join(f"{number:>{wide}}" for number in columns) if drawable else "placement"]
    for role in roles:
        has = sorted(number for devices, each in placement.items() if role in each for number in devices)
        if not drawable:
            lines.append(f"  {role:<12}{numbers(has)}")
            continue
        lines.append(f"  {role:<12}" + " ".join(f"{'#' if number in has else '.':>{wide}}" for number in columns))
    return lines


def numbers(devices: Sequence[int]) -> str:
    """Write the numbers of devices.

    >>> numbers((0, 1, 2, 5)), numbers((3,))
    ('0 to 2, 5', '3')
    """
    runs: list[list[int]] = []
    for number in devices:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


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

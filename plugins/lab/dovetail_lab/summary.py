"""The summary of a run, from the records in its folder."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.errors import printable
from dovetail.run.files import read_lines, write_whole
from dovetail.run.summary import series

if TYPE_CHECKING:
    from dovetail.config import Config

EQUAL: Final = 1e-9
"""Scores whose deviation is at most this share of their size are equal."""


@contextmanager
def summarised(options: argparse.Namespace, config: Config, folder: Path) -> Iterator[None]:
    """Print the summary of what was trained in this context, unless it fails."""
    yield
    from dovetail.devices import processes

    if processes.is_first():
        print(printable(summarise(folder)))


def summarise(folder: Path) -> str:
    """Return a few lines: the first and last accuracy and reward, the duration, and the paths of the files.

    The figures are also written to `summary.json`.
    """
    figures: dict[str, Any] = {}
    lines = []
    loss = series(folder, "sft/loss", "sft")
    if loss:
        figures["sft/loss"] = {"first": loss[0][1], "last": loss[-1][1], "steps": loss[-1][0]}
        lines.append(f"warm start   loss {loss[0][1]:.3f} -> {loss[-1][1]:.3f} in {loss[-1][0]} steps")
    for metric, label, form in (("eval/accuracy", "held-out", "{:.1%}"), ("reward/mean", "reward", "{:.3f}")):
        values = series(folder, metric)
        if values:
            known = [(step, value) for step, value in values if not math.isnan(value)] or values
            best_step, best = max(known, key=lambda pair: pair[1])
            figures[metric] = {
                "first": values[0][1],
                "last": values[-1][1],
                "best": best,
                "best_step": best_step,
            }
            lines.append(
                f"{label:<12} {form.format(values[0][1])} -> {form.format(values[-1][1])}"
                f" after {values[-1][0]} steps (best {form.format(best)} at {best_step})"
            )
    timings = read_lines(folder / "timings.jsonl")
    total = sum(line["time/step"] for line in timings)
    figures["seconds"] = _spent(timings) | {"total": total}
    lines.append(f"time         {total:.0f} s: {_shares(_spent(timings), total)}")
    if compiled := [line for line in timings if "compile/programs" in line]:
        programs, seconds = (sum(line[f"compile/{name}"] for line in compiled) for name in ("programs", "seconds"))
        figures["compiled"] = {"programs": programs, "seconds": seconds, "last_step": compiled[-1]["step"]}
        lines.append(
            f"compiled     {programs:.0f} programs in {seconds:.0f} s, the last in step {compiled[-1]['step']}"
        )
    lines += _taught_nothing(read_lines(folder / "metrics.jsonl", "rl"))
    lines.append(f"folder       {folder}")
    write_whole(folder / "summary.json", json.dumps(figures, indent=2) + "\n")
    return "\n".join(lines)


def _taught_nothing(lines: list[dict[str, Any]]) -> list[str]:
    """Return a warning if every completion of every step had the same score, else nothing.

    Runs with process rewards, which learn from those, and with completions that no reward scored are left out.
    """
    steps = [line for line in lines if "reward/std" in line]
    rewards = {name for line in steps for name in line if name.startswith(("reward/", "process_reward/"))}
    if not rewards - {"reward/mean", "reward/std"} or any(
        name == "reward/unscored" or name.startswith("process_reward/") for name in rewards
    ):
        return []
    scores = [line["reward/mean"] for line in steps]
    # the deviation of equal numbers such as 0.1 may differ from zero by rounding
    if any(not line["reward/std"] <= EQUAL * max(1.0, abs(line["reward/mean"])) for line in steps):
        return []
    lowest, highest = (f"{edge:.4g}" for edge in (min(scores), max(scores)))
    score = f"scored {lowest}" if lowest == highest else "of a step had the same score"
    return [
        f"warning      in all {len(steps)} steps every completion {score}: no group had a better and a worse one, so"
        " the reward has taught nothing"
    ]


def _spent(timings: list[dict[str, Any]]) -> dict[str, float]:
    spent: dict[str, float] = {}
    for line in timings:
        for name, value in line.items():
            if name.startswith("time/") and name not in ("time/step", "time/tokens_per_second"):
                key = "sft" if line["phase"] == "sft" else name.removeprefix("time/")
                spent[key] = spent.get(key, 0.0) + value
    return spent


def _shares(spent: dict[str, float], total: float) -> str:
    largest_first = sorted(spent.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {seconds / max(total, 1e-9):.0%}" for name, seconds in largest_first)

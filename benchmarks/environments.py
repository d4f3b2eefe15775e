"""Train the recipes of several turns with three seeds each: `python benchmarks/environments.py [--folder FOLDER]`.

Runs that are there already are not repeated, and one that was interrupted goes on. The table on standard output has,
for each recipe, the success rate of samples at temperature 1 on held-out examples after the warm start and at the end,
and the CPU seconds of both cores with compilation and evaluations. `--picture FILE.svg` draws the success rate by step.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from dovetail.run.files import records, write_whole
from dovetail_lab.report.charts import Line, lines
from dovetail_lab.report.numbers import Unit
from dovetail_lab.report.picture import picture

SUCCESS = "eval/sampled_accuracy"


@attrs.frozen
class Recipe:
    """A recipe with the success rates of a policy that knows nothing and of one that knows everything."""

    name: str
    floor: float
    ceiling: float


RECIPES = (
    Recipe("guess_number", 1 - (15 / 16) ** 5, 1.0),
    Recipe("frozen_lake", 0.07, 1.0),
    Recipe("calculation", 0.0, 1.0),
    Recipe("faulty_tool", 0.8, 1 - 0.2**4),
    Recipe("local_search", 1 / 40, 1.0),
)


def trained(recipe: Recipe, seed: int, folder: Path) -> Path:
    """Train a recipe to the end, and return its run folder."""
    run = folder / f"{recipe.name}-{seed}"
    command = [str(Path(sys.executable).with_name("dovetail")), "train", recipe.name]
    command += ["--folder", str(run), "--set", f"run.seed={seed}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not (run / "cpu.json").exists():
        subprocess.run(command, check=True, stdout=sys.stderr)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        (run / "cpu.json").write_text(json.dumps({"seconds": round(seconds)}))
    return run


def curve(run: Path) -> list[tuple[int, float]]:
    """Return the success rate of samples by step."""
    return [(record["step"], record[SUCCESS]) for record in records(run / "metrics.jsonl") if SUCCESS in record]


def row(recipe: Recipe, runs: Sequence[Path]) -> str:
    """Return the row of a recipe in the table."""
    curves = [curve(run) for run in runs]
    starts, ends = ([points[at][1] for points in curves] for at in (0, -1))
    way = [(end - recipe.floor) / (recipe.ceiling - recipe.floor) for end in ends]
    cpu = [json.loads((run / "cpu.json").read_text())["seconds"] for run in runs]
    cells = (
        f"`{recipe.name}`",
        f"{recipe.floor:.1%}",
        f"{recipe.ceiling:.1%}",
        ", ".join(f"{start:.1%}" for start in starts),
        ", ".join(f"{end:.1%}" for end in ends),
        ", ".join(f"{part:.0%}" for part in way),
        f"{min(cpu):,} to {max(cpu):,}",
    )
    return f"| {' | '.join(cells)} |"


def draw(found: Sequence[tuple[Recipe, Sequence[Path]]]) -> str:
    """Return the picture: a chart for each recipe, with thin lines for its runs and a bold one for their mean."""
    charts = []
    for recipe, runs in found:
        curves = [curve(run) for run in runs]
        mean = [(step[0][0], sum(rate for _, rate in step) / len(step)) for step in zip(*curves, strict=True)]
        thin = [Line(label=f"run {number}", color=1, points=points, thin=True) for number, points in enumerate(curves)]
        bold = Line(label=f"mean of {len(runs)} runs", color=1, points=mean)
        chart = lines([*thin, bold], unit=Unit(percent=True), label=f"success by step of {recipe.name}", small=True)
        charts.append((f"{recipe.name}, {mean[0][1]:.0%} to {mean[-1][1]:.0%}", chart))
    return picture("Success of held-out samples", charts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/environments"))
    parser.add_argument("--recipes", nargs="+", choices=[recipe.name for recipe in RECIPES])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    chosen = [recipe for recipe in RECIPES if not options.recipes or recipe.name in options.recipes]
    found = [(recipe, [trained(recipe, seed, options.folder) for seed in options.seeds]) for recipe in chosen]
    print("| recipe | floor | ceiling | after the warm start | at the end | of the way | CPU seconds |")
    print("|---|---|---|---|---|---|---|")
    for recipe, runs in found:
        print(row(recipe, runs))
    if options.picture:
        write_whole(options.picture, draw(found))


if __name__ == "__main__":
    main()

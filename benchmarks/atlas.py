"""Every policy loss, critic-free estimator, aggregation and correction of the catalogue, by registered A/B tests.

    python benchmarks/atlas.py [--folder atlas] [--families policy_loss advantage loss_agg correction] [--seeds 8]

All arms and seeds go on from one model, which a supervised warm start has made once in `FOLDER/base`. A seed is that of
the prompts and of what is sampled.

Each family is a test of its own (`dovetail ab`), with Holm over its arms: `FOLDER/FAMILY/ab.html` has the forest plot,
the curves and the verdicts, whatever they are, and `FOLDER/atlas.md` lists them. The same command again goes on where
it stands. What the config cannot plan, such as an estimator that needs several turns, is left out and named.

The control is GRPO, with the mean over all tokens. Corrections are compared where they have something to do: the
sampler is four steps, 32 updates, behind the trainer, and the control corrects nothing (`uncorrected.py`).

With n seeds the least p of the sign-flip test is 2^(1-n), which Holm multiplies by the number of arms at first: a test
in which that is not below 5 % could never decide. So a family has as many seeds as it needs, and `--seeds` at least.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import attrs

import dovetail
from dovetail.config import load
from dovetail.errors import DovetailError
from dovetail.registry import add_file, current
from dovetail.train.loop import train
from dovetail_lab.evaluation.policy import open_policy

CONFIG = Path(__file__).with_name("atlas.gin")


@attrs.frozen
class Family:
    """The components of a kind that are compared with one of them, the control."""

    kind: str
    control: str
    settings: tuple[str, ...] = ()
    plugin: Path | None = None


FAMILIES = {
    family.kind: family
    for family in (
        Family("policy_loss", "grpo"),
        Family("advantage", "grpo"),
        Family("loss_agg", "token_mean"),
        Family("correction", "uncorrected", ("train.staleness=4",), CONFIG.with_name("uncorrected.py")),
    )
}
ALPHA = 0.05


def base(folder: Path, sets: Sequence[str]) -> list[str]:
    """Train the warm start, or take the one that is there; return the settings of a run that goes on from it."""
    exported = (folder / "base-model").resolve()
    if not exported.exists():
        config = load(CONFIG, sets)
        train(config, folder / "base", only_sft=True)
        open_policy(config, folder / "base").export(exported, adapter=False)
    tokenizer = str(exported / "tokenizer.model")
    return [
        "sft.steps=0",
        "train.model='pretrained'",
        f"model.pretrained.path={str(exported)!r}",
        f"tokenizer.sentencepiece.path={tokenizer!r}",
    ]


def candidates(family: Family, sets: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the components that the config can train with, the control first; and why the others cannot."""
    kind, control = family.kind, family.control
    if family.plugin:
        add_file(str(family.plugin))
    load(CONFIG, [*sets, *family.settings, f"train.{kind}={control!r}"])
    names, left_out = [control], {}
    for component in current().components():
        if component.kind != kind or component.name == control or component.origin.distribution != "dovetail":
            continue
        if "values" in component.reads:
            left_out[component.name] = "it needs a critic"
            continue
        try:
            load(CONFIG, [*sets, *family.settings, f"train.{kind}={component.name!r}"])
            names.append(component.name)
        except DovetailError as error:
            left_out[component.name] = str(error).splitlines()[0]
    return names, left_out


def seeds_for(arms: int, least: int) -> int:
    """Return how many seeds a family needs for a verdict to be possible.

    >>> seeds_for(1, 2), seeds_for(6, 8), seeds_for(24, 8)
    (6, 8, 10)
    """
    seeds = least
    while 2.0 ** (1 - seeds) * arms > ALPHA:
        seeds += 1
    return seeds


def compare(family: Family, settings: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Run, or go on with, the test of a family; return its lines of `atlas.md`."""
    kind = family.kind
    names, left_out = candidates(family, settings)
    if options.only:
        names = [names[0], *(name for name in names[1:] if name in options.only)]
    seeds = options.seeds if options.exactly else seeds_for(len(names) - 1, options.seeds)
    print(f"{kind}: {len(names) - 1} against {names[0]}, {seeds} seeds; left out: {', '.join(left_out) or 'none'}")
    analysis = dovetail.ab(
        CONFIG,
        {name: [f"train.{kind}={name!r}"] for name in names},
        folder=options.folder / kind,
        settings=[*settings, *family.settings, f"sweep.jobs={options.jobs}"],
        seeds=seeds,
        metric="eval/accuracy",
    )
    lines = [f"## {kind}", "", f"Against `{names[0]}`, {seeds} seeds each; [the page]({kind}/ab.html).", ""]
    lines += ["| | verdict | difference of accuracy | p (Holm) |", "|---|---|---|---|"]
    for name, found in analysis.comparisons.items():
        lines.append(f"| `{name}` | {found.verdict} | {found.mean:+.3f} | {found.adjusted_p:.3g} |")
    lines += ["", *(f"- left out: `{name}`: {why}" for name, why in left_out.items()), ""]
    return lines


def main() -> None:
    """Run all families."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("atlas"))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--only", nargs="+", help="these components alone")
    parser.add_argument("--seeds", type=int, default=8, help="at least")
    parser.add_argument(
        "--exactly", action="store_true", help="no more seeds than --seeds, whether or not that can decide"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    settings = [*options.set, *base(options.folder, options.set)]
    lines = ["# Atlas", ""]
    for kind in options.families:
        lines += compare(FAMILIES[kind], settings, options)
        (options.folder / "atlas.md").write_text("\n".join(lines))
    print(options.folder / "atlas.md")


if __name__ == "__main__":
    main()

"""Every policy loss, critic-free estimator, aggregation and correction of the catalogue, by registered A/B tests.

    python benchmarks/atlas/atlas.py [--folder atlas] [--tasks sums counting] [--families loss_agg ...] [--seeds 8]
    python benchmarks/atlas/atlas.py --families staleness_none staleness_tis_token --tasks sums --min-effect 0.05
    python benchmarks/atlas/atlas.py --families claim_clip_higher claim_cispo claim_gspo --tasks sums
    python benchmarks/atlas/atlas.py --families claim_clip_higher_clipping claim_cispo_clipping --tasks sums --seeds 6
    python benchmarks/atlas/atlas.py --families claim_gspo_long claim_maxrl --tasks long

There are two tasks, `sums.gin` and `counting.gin`, and a third for a claim about long completions. All arms and seeds
of a task go on from one model, which a supervised warm start has made once in `FOLDER/TASK/base`. A seed is that of the
prompts and of what is sampled.

Each family is a test of its own (`dovetail ab`), with Holm over its arms. `FOLDER/atlas.html` has the verdicts, the
forest plot and the curves of all tests in the folder, whatever they are (`atlas_report.py`), `FOLDER/TASK/FAMILY` the
whole report of each and the plot alone, `atlas.svg`, and `FOLDER/atlas.md` lists the verdicts of the families asked
for. The same command again goes on where it stands. What the config cannot plan, such as an estimator that needs
several turns, is left out and named.

The control is GRPO, with the mean over all tokens. Corrections are compared where they have something to do, with a
control that corrects nothing (`uncorrected.py`): in `correction` the sampler is four steps, 32 updates, behind the
trainer, and in `mismatch` it has weights of eight bits (`float8.py`).

The families `staleness_...` compare sampling 1, 2 and 4 steps ahead with sampling in turn, each with another way to
correct for it, or none. Their settings are those of the quickstart, one update per batch, for 200 of its 700 steps.

The families `claim_...` test what papers say: that a higher upper clip bound keeps entropy (DAPO), that CISPO learns
more where many tokens are clipped (MiniMax-M1), that GSPO clips far more tokens than GRPO and learns more where
completions are long (`long.gin`), and that the advantages of MaxRL learn more than GRPO's.

The first settings of two of them clip few tokens (0.8 % and 0.1 %), so there are two with three times the learning
rate, 3e-4, where GRPO clips 2.4 % in a pilot run of seed 100, 0.6 % of them at the upper bound (at 1e-4, 0.1 %). The
predictions, written before the runs: `claim_clip_higher_clipping`, entropy is higher with an upper bound of 0.28 or 0.5
than with 0.2; `claim_cispo_clipping`, CISPO solves more than GRPO.

With n seeds the least p of the sign-flip test is 2^(1-n), which Holm multiplies by the number of arms at first: a test
in which that is not below 5 % could never decide. So a family has as many seeds as it needs, and `--seeds` at least.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
from atlas_report import LEFT_OUT, PAGE, render

import dovetail
from dovetail.config import load
from dovetail.errors import DovetailError
from dovetail.registry import add_file, current
from dovetail.training.loop import train
from dovetail_lab.ab.comparison import differences
from dovetail_lab.evaluation.policy import open_policy
from dovetail_lab.report.charts import WIDTH
from dovetail_lab.report.page import write
from dovetail_lab.report.picture import picture

HERE = Path(__file__).parent
COUNTING = (HERE / "counting.py",)
TASKS: Mapping[str, tuple[Path, ...]] = {"sums": (), "counting": COUNTING, "long": COUNTING}
"""The tasks, each a config of that name, with the files of the components that it needs."""
BOTH = ("sums", "counting")


@attrs.frozen
class Family:
    """Arms that are compared with one of them, the control.

    Attributes:
        kind: all its components are compared, unless `arms` are given.
        control: one of them.
        settings: of all arms.
        arms: what each arm sets, by name, the control first.
        needs: a setting that a component has no default for, by component; `{max_tokens}` is the task's length limit.
        plugins: files with components that they need.
        metric: what is compared, at the end of training; higher is better.
    """

    kind: str = ""
    control: str = ""
    settings: tuple[str, ...] = ()
    arms: Mapping[str, Sequence[str]] | None = None
    needs: Mapping[str, str] = attrs.field(factory=dict)
    plugins: Sequence[Path] = ()
    metric: str = "eval/accuracy"


def staleness(*settings: str, plugins: Sequence[Path] = ()) -> Family:
    """Return the family of steps ahead with a correction."""
    quickstart = (
        *("train.prompts=64", "train.epochs=1", "train.mini_batch_size=512", "train.lr=3e-4", "train.steps=200"),
        *("eval.every=25", "eval.examples=500", "eval.batch_size=500"),
    )
    ahead = {f"k{k}": [f"train.staleness={k}"] for k in (0, 1, 2, 4)}
    return Family(settings=(*quickstart, *settings), arms=ahead, plugins=plugins)


def arms_of(kind: str, *names: str) -> dict[str, list[str]]:
    """Return an arm for each of these components, the control first."""
    return {name: [f"train.{kind}={name!r}"] for name in names}


LENGTH_LIMIT = "loss_agg.sequence_mean_token_scale.normalizer={max_tokens}"
"""The normaliser that TRL gives it: the longest completion that may be sampled."""
UNCORRECTED, FLOAT8 = HERE / "uncorrected.py", HERE / "float8.py"
CLIPPING = ("train.lr=3e-4",)
"""With which many more tokens leave the clip range."""
HIGHER = {f"high{e}": [f"policy_loss.grpo.epsilon_high={e}"] for e in (0.2, 0.28, 0.5)}
FAMILIES = {
    "policy_loss": Family("policy_loss", "grpo"),
    "advantage": Family("advantage", "grpo"),
    "loss_agg": Family("loss_agg", "token_mean", needs={"sequence_mean_token_scale": LENGTH_LIMIT}),
    "correction": Family("correction", "uncorrected", ("train.staleness=4",), plugins=[UNCORRECTED]),
    "mismatch": Family("correction", "uncorrected", ("train.rollout='float8'",), plugins=[UNCORRECTED, FLOAT8]),
    "staleness_none": staleness("train.correction='uncorrected'", plugins=[UNCORRECTED]),
    "staleness_tis_token": staleness("train.correction='tis_token'"),
    "staleness_decoupled_ppo": staleness("train.policy_loss='decoupled_ppo'"),
    "claim_clip_higher": Family(arms=HIGHER, metric="entropy/mean"),
    "claim_clip_higher_clipping": Family(arms=HIGHER, settings=CLIPPING, metric="entropy/mean"),
    "claim_cispo": Family(arms=arms_of("policy_loss", "grpo", "cispo"), settings=("train.epochs=4",)),
    "claim_cispo_clipping": Family(arms=arms_of("policy_loss", "grpo", "cispo"), settings=CLIPPING),
    "claim_gspo": Family(arms=arms_of("policy_loss", "grpo", "gspo"), metric="policy_loss/clip_fraction"),
    "claim_gspo_long": Family(arms=arms_of("policy_loss", "grpo", "gspo")),
    "claim_maxrl": Family(arms=arms_of("advantage", "grpo", "maxrl")),
}
COMPONENTS = tuple(name for name, family in FAMILIES.items() if family.kind)
ALPHA = 0.05


def config_of(task: str) -> Path:
    """Return the config of a task, whose components can be used from now on."""
    for plugin in TASKS[task]:
        add_file(str(plugin))
    return HERE / f"{task}.gin"


def base(config: Path, folder: Path, sets: Sequence[str]) -> list[str]:
    """Train the warm start, or take the one that is there; return the settings of a run that goes on from it."""
    exported = (folder / "base-model").resolve()
    if not exported.exists():
        loaded = load(config, sets)
        train(loaded, folder / "base", only_sft=True)
        open_policy(loaded, folder / "base").export(exported, adapter=False)
    tokenizer = str(exported / "tokenizer.model")
    return [
        "sft.steps=0",
        "train.model='pretrained'",
        f"model.pretrained.path={str(exported)!r}",
        f"tokenizer.sentencepiece.path={tokenizer!r}",
    ]


def candidates(config: Path, family: Family, sets: Sequence[str]) -> tuple[Mapping[str, Sequence[str]], dict[str, str]]:
    """Return what each arm sets, the control first; and why components are left out, if the config cannot have them."""
    for plugin in family.plugins:
        add_file(str(plugin))
    if family.arms:
        return dict(family.arms), {}
    kind, control = family.kind, family.control
    arms = arms_of(kind, control)
    loaded = load(config, [*sets, *family.settings, *arms[control]])
    left_out = {}
    for component in current().components(kind):
        name = component.name
        if name == control or component.origin.distribution != "dovetail":
            continue
        if "values" in component.reads:
            left_out[name] = "it needs a critic"
            continue
        arm = arms_of(kind, name)[name]
        if name in family.needs:
            arm.append(family.needs[name].format(max_tokens=loaded.sampling.max_tokens))
        try:
            load(config, [*sets, *family.settings, *arm])
            arms[name] = arm
        except DovetailError as error:
            left_out[name] = shortened(name, str(error).splitlines()[0])
    return arms, left_out


def shortened(name: str, message: str) -> str:
    """Return the reason in a message about a component, without the advice.

    >>> shortened("gigpo", "train.advantage = gigpo reads 'turns', which a loop provides; set train.agent_loop")
    "it reads 'turns', which a loop provides"
    """
    reason = message.partition(f"{name} ")[2].partition(";")[0]
    return f"it {reason}" if reason else message


def seeds_for(arms: int, least: int) -> int:
    """Return how many seeds a family needs for a verdict to be possible.

    >>> seeds_for(1, 2), seeds_for(6, 8), seeds_for(24, 8)
    (6, 8, 10)
    """
    seeds = least
    while 2.0 ** (1 - seeds) * arms > ALPHA:
        seeds += 1
    return seeds


def compare(task: str, name: str, settings: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Run, or go on with, the test of a family; return its lines of `atlas.md`."""
    family, config = FAMILIES[name], config_of(task)
    arms, left_out = candidates(config, family, settings)
    control = next(iter(arms))
    if options.only:
        arms = {arm: sets for arm, sets in arms.items() if arm in (control, *options.only)}
    seeds = options.seeds if options.exactly else seeds_for(len(arms) - 1, options.seeds)
    title = f"{task}, {name}"
    print(f"{title}: {len(arms) - 1} against {control}, {seeds} seeds; left out: {', '.join(left_out) or 'none'}")
    analysis = dovetail.ab(
        config,
        arms,
        folder=options.folder / task / name,
        settings=[*settings, *family.settings, f"sweep.jobs={options.jobs}"],
        seeds=seeds,
        metric=family.metric,
        min_effect=options.min_effect,
    )
    (options.folder / task / name / LEFT_OUT).write_text(json.dumps(left_out, indent=2) + "\n")
    drawn = picture(f"{title}: {family.metric} against {control}", [("", differences(analysis, WIDTH))])
    (options.folder / task / name / "atlas.svg").write_text(drawn)
    lines = [f"## {title}", "", f"Against `{control}`, {seeds} seeds each; [the page]({task}/{name}/ab.html).", ""]
    lines += [f"| | verdict | difference of {family.metric} | p (Holm) |", "|---|---|---|---|"]
    for arm, found in analysis.comparisons.items():
        lines.append(f"| `{arm}` | {found.verdict} | {found.mean:+.3f} | {found.adjusted_p:.3g} |")
    lines += ["", *(f"- left out: `{arm}`: {why}" for arm, why in left_out.items()), ""]
    return lines


def main() -> None:
    """Run all families."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("atlas"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(BOTH))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(COMPONENTS))
    parser.add_argument("--only", nargs="+", help="these components alone")
    parser.add_argument("--seeds", type=int, default=8, help="at least")
    parser.add_argument(
        "--exactly", action="store_true", help="no more seeds than --seeds, whether or not that can decide"
    )
    parser.add_argument(
        "--min-effect", type=float, default=0.0, help="the smallest difference of accuracy that matters"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    lines = ["# Atlas", ""]
    for task in options.tasks:
        settings = [*options.set, *base(config_of(task), options.folder / task, options.set)]
        for name in options.families:
            lines += compare(task, name, settings, options)
            (options.folder / "atlas.md").write_text("\n".join(lines))
            write(options.folder / PAGE, render(options.folder, FAMILIES))
    print(options.folder / "atlas.md", options.folder / PAGE)


if __name__ == "__main__":
    main()

"""The report of an evaluation: every figure with its confidence interval, for all prompts and for each data source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np

from dovetail.config import Config, dump
from dovetail.config.located import note_files
from dovetail.errors import DataError
from dovetail.host.prompts import LengthReport
from dovetail.host.rewards import Scorer
from dovetail.host.sampling import Sampler
from dovetail.protocols import Task
from dovetail.run.files import json_bytes, make_folder, write_whole, writing
from dovetail.run.folder import CONFIG
from dovetail.training.columns import make_scorer
from dovetail.training.evaluation import Columns
from dovetail.training.texts import prompts
from dovetail_lab.evaluation.checks import make_answers, make_checks
from dovetail_lab.evaluation.evaluate import Evaluator
from dovetail_lab.evaluation.policy import Policy
from dovetail_lab.evaluation.statistics import CONFIDENCE, Estimate, estimate

ALL: Final = "all"
SOURCE: Final = "data_source"
"""The column that says where a prompt comes from; without it, all come from the task."""
REPORT, SAMPLES = "report.json", "samples.jsonl"

Watch = Callable[[str, int, int], None]
"""Told the phase, how many prompts are done, and how many there are."""


@attrs.frozen(kw_only=True)
class Report:
    """What an evaluation found.

    Attributes:
        figures: by data source, `all` first, the estimate of each metric.
        records: a record for each completion.
        at: which weights it is about.
        config: with which they were evaluated.
        lengths: how many prompts exceed the limit, and what became of them.
    """

    figures: dict[str, dict[str, Estimate]]
    records: list[dict[str, Any]]
    at: str
    config: Config
    lengths: LengthReport

    def __str__(self) -> str:
        return self.table()

    @property
    def metrics(self) -> dict[str, float]:
        """The figures over all prompts, by name, without their intervals."""
        return {name: figure.value for name, figure in self.figures[ALL].items()}

    def write(self, folder: Path) -> None:
        """Write `report.json`, `samples.jsonl`, and `config.gin`, with where its files are: what they are about."""
        make_folder(folder)
        samples = "".join(json_bytes(each, default=str).decode() + "\n" for each in self.records)
        with writing(folder):
            write_whole(folder / CONFIG, dump(self.config))
            note_files(folder, self.config)
            write_whole(folder / SAMPLES, samples)
            write_whole(folder / REPORT, self.json() + "\n")

    def json(self) -> str:
        """Return the figures as JSON."""
        sources = {
            source: {name: attrs.asdict(figure) for name, figure in figures.items()}
            for source, figures in self.figures.items()
        }
        return json.dumps({"weights": self.at, "confidence": CONFIDENCE, "sources": sources}, indent=2)

    def table(self) -> str:
        """Return the figures as text, a block for each source; a source that is all there is has none of its own."""
        only_one = len(self.figures) == 2
        blocks = [_block(source, figures) for source, figures in self.figures.items() if source == ALL or not only_one]
        return "\n\n".join(blocks)


def evaluate(policy: Policy, *, limit: int | None, watch: Watch) -> Report:
    """Complete the prompts of the config's `eval` split, score the completions, and estimate.

    Args:
        policy: what completes them.
        limit: the first so many of the prompts; None: all.
        watch: told of the progress.

    Raises:
        DovetailError: as a run with this config would.
    """
    config = policy.config
    task: Task = config.choice("eval.task").bind()
    scorer = make_scorer(config)
    checks = make_checks(config, scorer, task)
    examples, lengths = prompts(config, task, "eval", policy.tokenizer, policy.loop)
    examples = examples[:limit]
    if not len(examples):
        raise DataError(f"task {config.choice('eval.task').component.name} has no prompts in its eval split")
    with policy.engine() as engine:
        evaluator = Evaluator(
            sampler=Sampler(complete=policy.completer(engine), scorer=scorer),
            examples=examples,
            checks=checks,
            answers=make_answers(config),
            settings=config.eval,
            sampling=config.sampling,
            seed=config.run.seed,
        )
        greedy = evaluator.greedy(lambda done: watch("greedy", done, len(examples)))
        columns, records = greedy.columns(), greedy.records("greedy")
        if config.eval.samples:
            sampled = evaluator.sampled(lambda done: watch("sampled", done, len(examples)))
            columns |= evaluator.sampled_columns(sampled)
            records += sampled.records("sampled")
    name = config.choice("eval.task").component.name
    sources = [str(example.get(SOURCE, name)) for example in greedy.examples]
    for record in records:
        record[SOURCE] = sources[record["index"]]
    found = figures(columns, sources, ends_of(columns, scorer))
    return Report(figures=found, records=records, at=policy.at, config=config, lengths=lengths)


def ends_of(columns: Columns, scorer: Scorer) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest value of each column of which that is known.

    Shares are from 0 to 1; a reward is in the range that it declares, which says nothing of their weighted sum.
    """
    shares = [name for name in columns if not name.startswith("reward") and name != "length_mean"]
    declared = {f"reward/{part.component.name}": part.component.declares.get("range") for part in scorer.rewards}
    return dict.fromkeys(shares, (0.0, 1.0)) | {name: ends for name, ends in declared.items() if ends is not None}


def figures(
    columns: Columns, sources: Sequence[str], ends: Mapping[str, tuple[float, float]]
) -> dict[str, dict[str, Estimate]]:
    """Estimate each column over all prompts, and over those of each source, the sources in order of their names.

    `ends` are what the values of a column lie between, where that is known.

    >>> found = figures({"accuracy": np.array([1.0, 0.0, 1.0])}, ["b", "a", "b"], {"accuracy": (0, 1)})
    >>> [(source, round(of["accuracy"].value, 3), of["accuracy"].n) for source, of in found.items()]
    [('all', 0.667, 3), ('a', 0.0, 1), ('b', 1.0, 2)]
    """
    where = np.array(sources)
    named = {f"{ALL} ({SOURCE})" if source == ALL else source: source for source in sorted(set(sources))}
    rows = {ALL: np.full(len(where), True)} | {name: where == source for name, source in named.items()}
    return {
        source: {
            name: found
            for name, values in columns.items()
            if (found := estimate(values[chosen], ends.get(name))) is not None
        }
        for source, chosen in rows.items()
    }


def _block(source: str, figures: dict[str, Estimate]) -> str:
    width = max(map(len, figures))
    prompts = max(figure.n for figure in figures.values())
    lines = [f"{source} ({prompts} prompts)".ljust(width + 12) + f"{CONFIDENCE:.0%} interval"]
    lines += [
        f"  {name:<{width}} {figure.value:>9.3f}  {figure.low:>8.3f} to {figure.high:.3f}"
        for name, figure in figures.items()
    ]
    return "\n".join(lines)

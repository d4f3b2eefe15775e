"""Calls the chosen rewards on completions and combines their results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, Final, Literal

import attrs
import numpy as np
from jaxtyping import Float

from dovetail.errors import DovetailError, PlanError, RewardError, listing, nearest
from dovetail.host.records import OF_ALL
from dovetail.host.slow import told_if_slow
from dovetail.protocols import Completions, Episodes, Example
from dovetail.registry.places import raised_in
from dovetail.step.parts import Part, split_metrics

EXAMPLES = "examples"
"""A reward that reads this gets whole records. It needs the columns in its `columns` (a hyperparameter, or an attribute
of its class), if there are any, and those named by its hyperparameters `..._column`. They are checked as if the reward
read them by name."""
ALWAYS = ("completions", "prompts", EXAMPLES, "group_ids", "tokens", "logps")
OF_EPISODES = ("conversations", "states", "ends", "tool_calls")
"""The arguments that every reward may read by name, besides the columns: texts, prompts, records, and for each
completion the number of its prompt (so that a reward can rank a group), the ids of its tokens, and their
log-probabilities as sampled. With an agent loop of several turns there are also `OF_EPISODES`: the messages of each
episode, the interaction's last state, the reason why it ended, and the number of tool calls; a completion is then the
policy's own text of all turns."""

LARGEST: Final = 1e18
"""The greatest size of a score: advantages are computed in float32, which is to hold the squares of a group."""

Metrics = Mapping[str, Float[np.ndarray, "seq"]]
"""Metrics of completions by name; NaN for completions that do not have the metric."""


@attrs.frozen(kw_only=True)
class Scores:
    """The scores of completions, with the table of the rewards that they consist of.

    NaN in the table means that a reward abstained. NaN in the total means that all rewards abstained: such a completion
    is not trained on. `metrics` has the rewards' metrics as `REWARD/METRIC`, NaN for completions without the metric.
    """

    total: Float[np.ndarray, "seq"]
    table: Float[np.ndarray, "seq reward"]
    names: tuple[str, ...] = attrs.field(metadata=OF_ALL)
    metrics: Metrics = attrs.field(factory=dict)

    def means(self) -> dict[str, float]:
        """Return each reward's mean over completions on which it did not abstain, its abstentions, and mean metrics."""
        found = {}
        for name, column in zip(self.names, self.table.T, strict=True):
            abstained = np.isnan(column)
            if not abstained.all():
                found[f"reward/{name}"] = float(column[~abstained].mean())
            if abstained.any():
                found[f"reward/{name}/abstained"] = float(abstained.mean())
        return found | means_of("reward", self.metrics)


@attrs.frozen(kw_only=True)
class Scorer:
    """The chosen rewards and their manager, each built once; with `turns` rewards may read `OF_EPISODES`."""

    rewards: tuple[Part, ...]
    manager: Part
    turns: bool = False

    @cached_property
    def _functions(self) -> tuple[Callable[..., Any], ...]:
        return tuple(part.build() for part in self.rewards)

    @cached_property
    def _combine(self) -> Callable[..., Any]:
        return self.manager.build()

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(part.component.name for part in self.rewards)

    @property
    def columns(self) -> tuple[str, ...]:
        """What the rewards read beside `ALWAYS`, each once: columns of the task, or `column.key` inside of one."""
        found = (_columns(part, function) for part, function in zip(self.rewards, self._functions, strict=True))
        return tuple(name for name in dict.fromkeys(itertools.chain.from_iterable(found)) if name not in ALWAYS)

    def check(self) -> None:
        """Build the rewards, and let the manager check their names, before anything is trained.

        Raises:
            DovetailError: if a reward lacks a file or a library that it needs, or the manager refuses the names or
                does not return one score for each completion.
        """
        _ = self._functions  # building them is the check
        if self.rewards:
            self._combined(np.zeros((1, len(self.rewards))))

    def _combined(self, table: Float[np.ndarray, "seq reward"]) -> Float[np.ndarray, "seq"]:
        """Return the manager's scores, which broadcasting must not make of fewer."""
        component = self.manager.component
        with component.named():
            given = self._combine(table, self._names)
            total = np.asarray(given)
        if given is None:
            raise component.wrong("returned None; a function without `return` does")
        if total.shape != table.shape[:1] or total.dtype.kind not in "biuf" or np.isinf(total).any():
            form = "" if total.dtype == object else f", {total.dtype} {total.shape},"
            how = f"returned {shown(str(given))}{form} for {len(table)} completions"
            raise component.wrong(f"{how}; return one finite number for each, or NaN for no score")
        return total.astype(np.float64)

    def check_columns(self, columns: Sequence[str], task: str) -> None:
        """Refuse a reward that reads a column that the task does not have.

        Raises:
            PlanError: naming the reward, the column, the task's columns and the most similar name.
        """
        always = (*ALWAYS, *OF_EPISODES) if self.turns else ALWAYS
        check_columns(self.rewards, columns, task, always, self._functions)

    def __call__(
        self,
        examples: Sequence[Example],
        completions: Sequence[str],
        drawn: Completions | None = None,
        group_size: int = 1,
        episodes: Episodes | None = None,
    ) -> Scores:
        """Score completions; `completions[i]` answers `examples[i]`, and `drawn` has the sampled tokens.

        Each block of `group_size` consecutive completions answers one prompt.

        Raises:
            RewardError: if a reward raises, returns a wrong number of scores, or a score that is not a finite number;
                the message names the reward and the sample.
            PluginError: if the manager raises, or does not return one score for each completion.
        """
        table, metrics = self.table(examples, completions, drawn, group_size, episodes)
        # without rewards nothing abstains: the run learns only from process rewards or loss terms
        total = self._combined(table) if self.rewards else np.zeros(len(examples))
        return Scores(total=total, table=table, names=self._names, metrics=metrics)

    def table(
        self,
        examples: Sequence[Example],
        completions: Sequence[str],
        drawn: Completions | None = None,
        group_size: int = 1,
        episodes: Episodes | None = None,
    ) -> tuple[Float[np.ndarray, "seq reward"], Metrics]:
        """Return each reward's scores, NaN where it abstained, and the metrics. It raises the same errors as a call."""
        given = given_to_rewards(examples, completions, drawn, group_size, episodes)
        columns, metrics = [], {}
        for part, function in zip(self.rewards, self._functions, strict=True):
            scores, found = call_reward(part, function, examples, given, "score")
            columns.append(np.array([_number(score, part, i, given) for i, score in enumerate(scores)], np.float64))
            metrics |= found
        return np.stack(columns, axis=1) if columns else np.zeros((len(examples), 0)), metrics


def check_columns(
    parts: Sequence[Part], columns: Sequence[str], task: str, always: Sequence[str], built: Sequence[Any] | None = None
) -> None:
    """Refuse rewards that read columns that the task does not have; see `Scorer.check_columns`.

    `built` are the built rewards, if they are available.
    """
    for part, function in zip(parts, built or (None,) * len(parts), strict=True):
        there = {*always, *columns}
        missing = [name for name in _columns(part, function) if there.isdisjoint((name, name.partition(".")[0]))]
        if missing:
            what = f"the column '{missing[0]}'" if len(missing) == 1 else f"the columns {', '.join(missing)}"
            chosen = [name for name, value in _column_settings(part) if value in missing]
            settings = [f"{part.component.label}.{name}" for name in chosen]
            advice = f"; set {', '.join(settings)} to columns, or to None" if settings else ""
            who = f"{part.component.kind} {part.component.name} of {part.component.origin} reads {what}"
            place = part.component.place
            if asks := getattr(function, "asks", None):  # a user's file, which is to be named in place of the plugin's
                who, place = asks(missing[0]), ""
            raise PlanError(
                f"{who}, which task {task} does not have.{nearest(missing[0], columns)} Columns: {listing(columns)};"
                f" always there: {', '.join(always)}{advice}{place}"
            )


def given_to_rewards(
    examples: Sequence[Example],
    completions: Sequence[str],
    drawn: Completions | None,
    group_size: int,
    episodes: Episodes | None = None,
) -> dict[str, list[Any]]:
    """Return the arguments that rewards may read besides the columns, each with one entry per completion."""
    given = {
        "completions": list(completions),
        "prompts": [example["prompt"] for example in examples],
        EXAMPLES: list(examples),
        "group_ids": [row // group_size for row in range(len(examples))],
    }
    if drawn is not None:
        given["tokens"] = [row[mask].tolist() for row, mask in zip(drawn.tokens, drawn.mask, strict=True)]
        given["logps"] = [row[mask].tolist() for row, mask in zip(drawn.logps, drawn.mask, strict=True)]
    if episodes is not None:
        given |= {name: list(getattr(episodes, name)) for name in OF_EPISODES}
    return given


def _columns(part: Part, built: Any) -> tuple[str, ...]:
    reads = part.component.reads
    if EXAMPLES not in reads:
        return reads
    own = part.statics.get("columns", getattr(built, "columns", ()))
    return (*reads, *own, *(column for _, column in _column_settings(part)))


def _column_settings(part: Part) -> list[tuple[str, str]]:
    """Return the hyperparameters that name a column, or `column.key` inside of a column of dicts, with the names."""
    named = [(name, value) for name, value in part.statics.items() if name.endswith("_column") and value is not None]
    return named if EXAMPLES in part.component.reads else []


def call_reward(
    part: Part,
    function: Callable[..., Any],
    examples: Sequence[Example],
    given: Mapping[str, list[Any]],
    entry: Literal["score", "list"],
) -> tuple[list[Any], dict[str, Float[np.ndarray, "seq"]]]:
    """Call a reward or process reward.

    Args:
        part: the reward.
        function: the same, built.
        examples: the example that each completion answers.
        given: from `given_to_rewards`.
        entry: what it returns for each completion, for messages.

    Returns:
        What it returned for each completion, not checked yet, and its metrics as `REWARD/METRIC`.

    Raises:
        RewardError: if it raises, or returns anything but one entry for each completion.
    """
    name = part.component.name
    label = f"{part.component.kind} {name}"
    # each reward gets new lists, so that its changes to them do not affect the next reward
    arguments = [
        list(given[read]) if read in given else [example[read] for example in examples] for read in part.component.reads
    ]
    try:
        with told_if_slow(part):
            returned, metrics = split_metrics(function(*arguments))
        if refused := isinstance(returned, str | bytes | Mapping | Set) or not np.iterable(returned):
            returned = [f"{returned!r:.80}" + (", as a function without `return` does" if returned is None else "")]
        returned = list(itertools.islice(returned, len(examples) + 1))
    except DovetailError:
        raise
    except (Exception, SystemExit) as error:
        raise RewardError(
            f"{label} ({part.component.origin}) raised {_said(error)}; first completion:"
            f" {shown(given['completions'][0])}{raised_in(part.component.load(), error) or part.component.place}"
        ) from error
    if refused:
        how = f"returned {returned[0]}; return a list with a {_ENTRY[entry]} for each completion"
        raise RewardError(f"{label} ({part.component.origin}) {how}{part.component.place}")
    if (count := len(returned)) != len(examples):
        many = f"{count} {entry}s for {len(examples)}"
        many = many if count < len(examples) else f"more than {len(examples)} {entry}s for as many"
        raise RewardError(f"{label} returned {many} completions{part.component.place}")
    measured = {f"{name}/{key}": value for key, value in metrics.items()}
    return returned, {key: metric(value, key, len(examples)) for key, value in measured.items()}


_ENTRY: Final = {"score": "number", "list": "list of numbers"}


def _said(error: BaseException) -> str:
    """Return an error as one line, whatever its message is."""
    try:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    except Exception:
        return f"{type(error).__name__} without a readable message"


def _number(score: Any, part: Part, index: int, given: Mapping[str, list[Any]]) -> float:
    if score is None:
        return math.nan
    try:
        number = math.nan if isinstance(score, str | bytes) else float(score)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= LARGEST:
        raise RewardError(
            f"reward {part.component.name} gave {score!r} to sample {index}, prompt {shown(given['prompts'][index])},"
            f" completion {shown(given['completions'][index])}; return a finite number of at most {LARGEST:g}, or None"
            f" to abstain{part.component.place}"
        )
    return number


def metric(value: Any, name: str, size: int) -> Float[np.ndarray, "seq"]:
    """Return a reward's metric as one number per completion.

    Raises:
        RewardError: if it is neither one number nor one number per completion.
    """
    try:
        array = np.asarray(value, np.float64)
        return np.array(np.broadcast_to(array, (size,)))
    except (TypeError, ValueError) as error:
        raise RewardError(
            f"metric {name} of a reward is {shown(repr(value))}; return one number, or one for each of the {size}"
            " completions (NaN where there is none)"
        ) from error


def means_of(kind: str, metrics: Metrics) -> dict[str, float]:
    """Return the mean of each metric over the completions that have it; metrics without any value are left out."""
    given = {name: values[~np.isnan(values)] for name, values in metrics.items()}
    return {f"{kind}/{name}": float(values.mean()) for name, values in given.items() if len(values)}


def shown(text: str, limit: int = 80) -> str:
    """Return a text for a message, cut to `limit` characters."""
    return repr(text if len(text) <= limit else text[:limit] + "...")

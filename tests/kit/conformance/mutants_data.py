"""Broken tasks and sinks: they differ between processes, or leave things behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from tests.kit.conformance.mutants import caught_by
from tests.kit.conformance.mutants_answers import numbers, paid
from tests.kit.conformance.mutants_others import _Columns


@caught_by("task", "same_in_another_process", slow=True)
@attrs.frozen(kw_only=True)
class OrderedByASet(_Columns):
    def examples(self, split):
        return [dict(found) for found in {tuple(example.items()) for example in super().examples(split)}]


@caught_by("reward", "same_in_another_process", slow=True)
@paid
def breaks_ties_by_hash(completions, answer):
    right = [float(numbers(text)[-1:] == [truth]) for text, truth in zip(completions, answer, strict=True)]
    return [score or 0.25 * (hash(text) % 1000) / 1000 for score, text in zip(right, completions, strict=True)]


@caught_by("task", "distinct")
@attrs.frozen(kw_only=True)
class EverythingTwice(_Columns):
    def examples(self, split):
        return [example for example in super().examples(split) for _ in range(2)]


@caught_by("task", "answers_of_their_own")
@attrs.frozen(kw_only=True)
class AnswersOfTheNextRecord(_Columns):
    def examples(self, split):
        found = [{**each, "completion": f"It is {each['answer']}."} for each in super().examples(split)]
        following = found[1:] + found[:1]
        return [{**each, "answer": other["answer"]} for each, other in zip(found, following, strict=True)]


@caught_by("task", "held_out")
@attrs.frozen(kw_only=True)
class HoldsOutTheEndOfTraining(_Columns):
    def examples(self, split):
        made = [{"prompt": f"{number} + 1 =", "answer": str(number + 1)} for number in range(2000)]
        return {"train": made, "eval": made[-10:], "sft": []}[split]


@attrs.define
class _Lines:
    """An open sink that writes lines."""

    path: str
    mode: str
    lines: list[str] = attrs.field(factory=list)

    def write(self, step, metrics):
        self.lines.append(json.dumps({"step": step, **metrics}))

    def close(self):
        with open(self.path, self.mode) as file:
            file.write("".join(f"{line}\n" for line in self.lines))


@caught_by("sink", "writes")
@attrs.frozen(kw_only=True)
class TruncatesItsFile:
    def open(self, folder, total_steps, start_step):
        return _Lines(f"{folder}/lines.jsonl", "w")


@caught_by("sink", "writes")
@attrs.frozen(kw_only=True)
class NeverWrites:
    def open(self, folder, total_steps, start_step):
        return _Lines("/dev/null", "w")


class _Rounds(_Lines):
    def write(self, step, metrics):
        for name in metrics:
            metrics[name] = round(metrics[name])
        super().write(step, metrics)


@caught_by("sink", "leaves_the_record")
@attrs.frozen(kw_only=True)
class RoundsTheRecord:
    def open(self, folder, total_steps, start_step):
        return _Rounds(f"{folder}/lines.jsonl", "a")


@attrs.define
class _Appended:
    """An open sink that has a line in its file as soon as it is given a record, and keeps some of those that are there."""

    path: str
    keeps: Callable[[dict[str, Any]], object]

    def __attrs_post_init__(self):
        kept = [line for line in self._there() if self.keeps(json.loads(line))]
        Path(self.path).write_text("".join(kept))

    def _there(self):
        return Path(self.path).read_text().splitlines(keepends=True) if Path(self.path).exists() else []

    def write(self, step, metrics):
        with open(self.path, "a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")

    def close(self):
        """Every line is on disk already."""


@caught_by("sink", "keeps_the_warm_start")
@attrs.frozen(kw_only=True)
class OneCountForBothPhases:
    def open(self, folder, total_steps, start_step):
        return _Appended(f"{folder}/lines.jsonl", lambda record: record["step"] <= start_step)


@caught_by("sink", "keeps_the_warm_start")
@attrs.frozen(kw_only=True)
class BeginsAnewWithinTheWarmStart:
    def open(self, folder, total_steps, start_step):
        return _Appended(
            f"{folder}/lines.jsonl",
            lambda record: start_step and ("sft/loss" in record or record["step"] <= start_step),
        )

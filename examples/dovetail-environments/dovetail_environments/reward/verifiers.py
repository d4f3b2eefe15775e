"""Reward `verifiers`: the rewards of a task of verifiers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from dovetail.registry import declares

from dovetail_environments._verifiers import named, scored

SAMPLE = '{"id": "dovetail_letters", "config": "{}", "size": 1, "index": 0}'


@declares(examples=[({"completions": "g", "verifiers_task": SAMPLE}, {"completions": "zz", "verifiers_task": SAMPLE})])
def verifiers(
    completions: Sequence[str], verifiers_task: Sequence[str]
) -> tuple[list[float | None], dict[str, list[float]]]:
    """Σ weight · score over the task's rewards, for completions of one turn; each is also a metric.

    For environments of several turns use the interaction `verifiers`, which scores what has been said in all turns.

    Args:
        completions: texts without special tokens.
        verifiers_task: the column of the task `verifiers`.

    Returns:
        The scores; and the unweighted rewards and the metrics of the tasks.

    Raises:
        RunError: if a reward raises.
    """
    traces = scored([named(column)[1] for column in verifiers_task], completions)
    found = [
        {name: reward.score for name, reward in trace.rewards.items() if reward is not None}
        | {name: float(value) for name, value in trace.metrics.items() if value is not None}
        for trace in traces
    ]
    names = sorted({name for each in found for name in each})
    metrics = {name: [each.get(name, np.nan) for each in found] for name in names}
    return [float(trace.reward) for trace in traces], metrics

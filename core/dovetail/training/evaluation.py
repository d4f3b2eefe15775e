"""What the engine knows of evaluations: their result, and who carries them out, a plugin (`dovetail_evaluator`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import numpy as np
from jaxtyping import Float

from dovetail.config import Config
from dovetail.host.rewards import Scorer, means_of
from dovetail.host.sampling import Sampler
from dovetail.protocols import Task
from dovetail.registry import plugin_manager
from dovetail.registry.calls import ask_for

if TYPE_CHECKING:
    from dovetail.training.setup import Setup

Columns = dict[str, Float[np.ndarray, "prompt"]]
"""One value per prompt for each metric, whose value is their mean; NaN for a prompt without one."""


@attrs.frozen(kw_only=True)
class Evaluation:
    """The result of an evaluation: for each metric a value per prompt, and the first completions as records."""

    columns: Columns
    records: list[dict[str, Any]]

    @property
    def metrics(self) -> dict[str, float]:
        """Each metric's mean over the prompts that have a value (`eval/accuracy`, `eval/pass@k`, ...)."""
        return means_of("eval", self.columns)


class Evaluator(Protocol):
    """Evaluates the weights of a sampler's engine on held-out examples."""

    def __call__(self, counted: Callable[[str, int], Callable[[int], None]]) -> Evaluation:
        """Complete and score the examples.

        `counted(activity, total)` returns a function that is called with the number of examples done.
        """
        ...


Opening = Callable[["Setup", Sampler], Evaluator]
"""Returns the evaluator of a run whose pieces are there."""


def evaluator(config: Config, scorer: Scorer, task: Task) -> Opening | None:
    """Return what opens the evaluator of a run, after its checks; None if the run does not evaluate."""
    if config.eval.every is None:
        return None
    asked = {"config": config, "scorer": scorer, "task": task}
    return ask_for(plugin_manager(), "dovetail_evaluator", config, "eval.every", **asked)

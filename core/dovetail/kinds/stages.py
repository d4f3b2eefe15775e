"""The stages of a training step, in order.

The planner checks against this list. What the engine does at each is spelt out where it runs: in `training/` and
`host/` those of level `host`, in `step/collect.py` those of `batch`, and in `step/update.py` the others.
"""

from __future__ import annotations

from typing import Final, Literal

import attrs

Level = Literal["host", "batch", "mini", "micro"]
"""Where a stage runs.

`host`: in Python; `batch`: in one compiled call on everything that a step has collected; `mini`: on each mini-batch
before it is split; `micro`: in the differentiated pass over each micro-batch.
"""


@attrs.frozen
class Stage:
    """A point in a step at which components are called.

    They see the fields as they are when the stage begins. Their results are available from the next stage on.
    """

    name: str
    level: Level
    summary: str


STAGES: Final = (
    Stage("drawn", "host", "prompts are chosen and completed"),
    Stage("scored", "host", "rewards score the completions, and their manager combines the scores"),
    Stage("filtered", "host", "groups without a learning signal are replaced; earlier completions are added"),
    Stage(
        "passes",
        "batch",
        "forward passes score the completions: policy, reference, critic, others; filters exclude some completions",
    ),
    Stage("corrections", "batch", "sampler and trainer are compared; off-policy tokens are weighted or rejected"),
    Stage("token_rewards", "batch", "scores are placed on tokens and shaped; the KL penalty is subtracted"),
    Stage("advantages", "batch", "the estimator computes the advantages"),
    Stage("loss_masks", "batch", "the policy loss's tokens are selected and weighted"),
    Stage("mini_batch", "mini", "the aggregation's weights are computed, before the mini-batch is split"),
    Stage("loss_terms", "micro", "the terms of the loss, on the policy (or the critic) being trained"),
    Stage("after_step", "host", "controllers and followers are updated with the results of the step"),
)

NAMES: Final = tuple(stage.name for stage in STAGES)
STAGE: Final = {stage.name: stage for stage in STAGES}


def comes_before(stage: str, other: str) -> bool:
    """Tell whether a stage has ended by the time another begins.

    >>> comes_before("corrections", "advantages"), comes_before("advantages", "advantages")
    (True, False)
    """
    return NAMES.index(stage) < NAMES.index(other)

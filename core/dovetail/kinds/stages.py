"""The stages of a training step, in order: the one list that the planner checks against and the engine executes."""

from __future__ import annotations

from typing import Final, Literal

import attrs

Level = Literal["host", "batch", "mini", "micro"]
"""Where a stage runs: on the host; in one compiled call on all that a step has collected; on each mini-batch before it
is split; in the differentiable pass over each micro-batch."""


@attrs.frozen
class Stage:
    """A point of a step at which components are called.

    What is called sees the fields as they stand when the stage begins. What it returns is there from the next stage
    on.
    """

    name: str
    level: Level
    summary: str


STAGES: Final = (
    Stage("drawn", "host", "prompts are chosen and completed"),
    Stage("scored", "host", "rewards score the completions, and their manager combines the scores"),
    Stage("filtered", "host", "groups without a training signal are replaced; earlier completions are mixed in"),
    Stage(
        "passes",
        "batch",
        "models score the completions: the policy that sampled, the reference, the critic, others; some are left out",
    ),
    Stage("corrections", "batch", "sampler and trainer are compared; off-policy tokens are weighted or rejected"),
    Stage("token_rewards", "batch", "scores are placed on tokens, shaped, and charged with the KL penalty"),
    Stage("advantages", "batch", "the estimator runs"),
    Stage("loss_masks", "batch", "selects and weights the tokens of the policy loss"),
    Stage("mini_batch", "mini", "weights of the aggregation, before the mini-batch is split"),
    Stage("loss_terms", "micro", "the terms of the loss, on the policy (or the critic) being trained"),
    Stage("after_step", "host", "controllers, curricula and following roles are updated with the results of the step"),
)

NAMES: Final = tuple(stage.name for stage in STAGES)
STAGE: Final = {stage.name: stage for stage in STAGES}


def comes_before(stage: str, other: str) -> bool:
    """Tell whether a stage is over when another begins.

    >>> comes_before("corrections", "advantages"), comes_before("advantages", "advantages")
    (True, False)
    """
    return NAMES.index(stage) < NAMES.index(other)


def at(level: Level) -> tuple[Stage, ...]:
    """Return the stages of a level, in order."""
    return tuple(stage for stage in STAGES if stage.level == level)

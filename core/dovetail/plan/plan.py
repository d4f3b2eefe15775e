"""What a step computes, and for whom."""

from __future__ import annotations

from typing import Literal

import attrs

Version = Literal["old", "ref", "answer", "now"]
Level = Literal["collect", "mini", "micro"]


@attrs.define
class Entry:
    """One field of the plan: who provides it and who reads it."""

    field: str
    provider: str
    origin: str
    readers: list[str] = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class Plan:
    """Exactly the work that the chosen components ask for.

    Attributes:
        entries: every field used, in order of computation, for `dovetail explain`.
        old: quantities of the forward pass of the policy at collection; empty means no such pass.
        ref: quantities of the reference's forward pass; empty means no such pass.
        answer: quantities of the policy at collection on the task's answers; empty means no such pass.
        answers: the task's answers are read, as tokens or through a forward pass.
        now: quantities of the differentiable forward pass of an update.
        reference: the reference's weights are needed, for its own pass or beside the policy's.
        reference_in_update: they are needed in every update.
        old_logps_from_update: `old_logps` is `stop_gradient(logps)`, since the update is on-policy and only losses
        read it.
        critic: a critic is trained, and scores the batch at collection.
        greedy: each prompt is also completed greedily.
        kl: the divergence from the reference is computed.
        roles: the roles of completions are read.
        state: the estimator remembers something from step to step.
        derived: names of `field` components to evaluate at each level, in order.
    """

    entries: tuple[Entry, ...]
    old: tuple[str, ...]
    ref: tuple[str, ...]
    answer: tuple[str, ...]
    answers: bool
    reference: bool
    reference_in_update: bool
    now: tuple[str, ...]
    old_logps_from_update: bool
    critic: bool
    greedy: bool
    kl: bool
    roles: bool
    state: bool
    derived: dict[Level, tuple[str, ...]]

    @property
    def forwards(self) -> tuple[str, ...]:
        """The forward passes of a step beside sampling and the update, by name."""
        names = (
            ("old policy", self.old),
            ("reference", self.ref),
            ("answers", self.answer),
            ("critic", self.critic),
            ("greedy", self.greedy),
        )
        return tuple(name for name, needed in names if needed)

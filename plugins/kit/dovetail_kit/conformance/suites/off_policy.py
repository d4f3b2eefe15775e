"""Claims about policy losses where policies differ: which way a regularisation and a correction of their own point."""

from __future__ import annotations

import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.directions import EPSILON
from dovetail_kit.conformance.suites.losses import BEHAVIOUR, on_policy

GAP = 0.3
"""In nats, of a policy that has moved, or a sampler that is off: within what most bounds reject."""


@check(
    "policy_loss",
    claim="regularised",
    when=lambda component: {"logps", "advantages"} <= {*component.reads} and bool({*BEHAVIOUR} & {*component.reads}),
    fix="Add the penalty to the loss, which is minimised; it is subtracted from an objective.",
)
def does_not_repel(subject: Subject) -> None:
    """Where all advantages are zero, descending does not move log π away from the other policies on both sides.

    With its sign turned, what is to keep the policy near another one drives it away, the faster the farther it is.
    """
    case = ArrayCase.of(subject)
    fields = on_policy(case.fields())
    fields |= {"advantages": np.zeros_like(fields["advantages"])}
    pulls = {}
    for side in (GAP, -GAP):
        moved = case.run(fields | {"logps": fields["logps"] + np.float32(side)}).gradients["logps"]
        pulls[side] = float(np.sign(side) * np.where(fields["mask"], moved, 0).sum())
    if max(pulls.values()) < -EPSILON:
        raise Failed(
            f"with A = 0 everywhere and log π {GAP:g} above the other policies, descending raises it (the gradients add"
            f" up to {pulls[GAP]:.6g}), and {GAP:g} below them lowers it ({-pulls[-GAP]:.6g})"
        )


@check(
    "policy_loss",
    claim="regularised",
    reads=["logps", "ref_logps", "advantages"],
    fix="Add the penalty outside of the bracket that the advantage multiplies: -A·r + β·k, not -A·(r - β·k).",
)
def pulls_whatever_the_advantage(subject: Subject) -> None:
    """A term that reads `ref_logps` pulls towards the reference where advantages are negative, too.

    Multiplied by the advantage, it drives the policy away from the reference on every completion that fails.
    """
    case = ArrayCase.of(subject)
    fields = on_policy(case.fields())
    mask, pulls = fields["mask"], {}
    for sign in (1.0, -1.0):
        advantages = np.where(mask, np.float32(sign), 0).astype(np.float32)
        near, above, below = (
            case.run(fields | {"advantages": advantages, "ref_logps": fields["logps"] - np.float32(gap)})
            .gradients["logps"][mask]
            .sum()
            for gap in (0.0, GAP, -GAP)
        )
        pulls[sign] = float(above - near), float(near - below)
    for which, what in ((0, "above"), (1, "below")):
        ours, theirs = pulls[1.0][which], pulls[-1.0][which]
        if ours * theirs < -EPSILON * EPSILON and min(abs(ours), abs(theirs)) > EPSILON:
            raise Failed(
                f"with log π {GAP:g} {what} the reference, the gradients add up to {ours:.6g} more where A = 1, and to"
                f" {theirs:.6g} more where A = -1: one of them moves away"
            )


def _corrects_itself(component: Component) -> bool:
    return {"logps", "old_logps", "rollout_logps", "advantages"} <= {*component.reads} and "correction" in (
        component.declares.get("excludes", ())
    )


@check(
    "policy_loss",
    when=_corrects_itself,
    fix="Weigh by exp(old_logps - rollout_logps): what the sampler draws too often counts less.",
)
def its_correction_corrects(subject: Subject) -> None:
    """A loss that does the work of a correction gives a token that the sampler draws too often no larger gradient than
    one that it draws too rarely.

    With the ratio inverted, it doubles the mismatch between sampler and trainer instead of removing it.
    """
    case = ArrayCase.of(subject)
    fields = on_policy(case.fields())
    for gap in (0.05, GAP):
        often, rarely = (
            np.abs(case.run(_sampled(fields, gap * side)).gradients["logps"])[fields["mask"]] for side in (1, -1)
        )
        wrong = (often > rarely + EPSILON) & (rarely > 0)  # what is drawn too rarely may be rejected
        if wrong.any():
            raise Failed(
                f"where the sampler draws tokens {np.exp(gap):.3g} times too often the gradient by logps is up to"
                f" {often[wrong].max():.6g}, and {rarely[wrong][np.argmax(often[wrong])]:.6g} where it draws them so"
                " much too rarely"
            )


def _sampled(fields: batch.Fields, gap: float) -> batch.Fields:
    return fields | {"rollout_logps": (fields["old_logps"] + np.float32(gap)).astype(np.float32)}

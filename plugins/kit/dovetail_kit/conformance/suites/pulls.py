"""Claims about what losses pull on, and in which direction."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from dovetail.errors import listing
from dovetail.registry import Component
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase, draws_nothing
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.directions import EPSILON, ROW
from dovetail_kit.conformance.suites.kl import expected_kl
from dovetail_kit.conformance.suites.losses import on_policy

OWN = ("old_logps", "rollout_logps", "answer_logps", "demo_logps", "ref_logps", "logps")
"""Log-probabilities that do not come from another model that is to be imitated."""


@check(
    "policy_loss",
    reads=["advantages", "logps"],
    when=draws_nothing,
    fix="Multiply each token's term by the advantage of that token.",
)
def every_advantage_counts(subject: Subject) -> None:
    """On policy, the advantage of every single token counts, where it is positive or where it is negative.

    Estimators with a critic, turns or process rewards give the tokens of a completion different advantages.
    """
    case = ArrayCase.of(subject)
    counts = np.zeros(batch.TOKENS, bool)
    for fields in _selected(on_policy(case.fields())):
        for advantage, other in ((0.4, 0.8), (-0.4, -0.8)):  # neither whole numbers nor beyond most bounds
            before = case.run(_with_advantages(fields, advantage))
            for token in np.flatnonzero(fields["mask"][ROW] & ~counts).tolist():
                after = case.run(_with_advantages(fields, advantage, token, other))
                pairs = [(after.value, before.value), *((after.gradients[n], g) for n, g in before.gradients.items())]
                counts[token] = any(not np.allclose(ours, theirs, atol=1e-6) for ours, theirs in pairs)
    fields = case.fields()
    missing = np.flatnonzero(fields["mask"][ROW] & ~counts)
    if missing.size:
        raise Failed(f"twice the advantage of token {missing[0]} changes neither the loss nor its gradient")


def _selected(fields: batch.Fields) -> Iterator[batch.Fields]:
    """Yield fields with the selections of tokens that a loss reads as they are, with all tokens, and with none."""
    yield fields
    mask = fields["mask"]
    selections = [
        name
        for name, value in fields.items()
        if name != "mask" and batch.has_tokens(value) and value.shape == mask.shape and value.dtype == bool
    ]
    for chosen in (True, False) if selections else ():
        yield fields | dict.fromkeys(selections, mask & chosen)


def _with_advantages(
    fields: batch.Fields, advantage: float, token: int = 0, other: float | None = None
) -> batch.Fields:
    """Return fields with the same advantage everywhere, but for one token if it has another."""
    advantages = np.where(fields["mask"], advantage, 0).astype(np.float32)
    advantages[ROW, token] = advantage if other is None else other
    return fields | {"advantages": advantages}


@check(
    "loss_term", "policy_loss", reads=["demo_logps"], fix="Minimise -demo_logps: what is demonstrated becomes likelier."
)
def demonstrations_become_likelier(subject: Subject) -> None:
    """Descending makes the tokens of demonstrations likelier, and none of them less likely.

    With the sign turned, the policy unlearns what it is shown.
    """
    case = ArrayCase.of(subject)
    gradient = case.run(case.fields()).gradients.get("demo_logps")
    if gradient is not None and (gradient > EPSILON).any():
        row, token = np.argwhere(gradient > EPSILON)[0]
        raise Failed(f"the gradient of the loss by demo_logps[{row}, {token}] is {gradient[row, token]:.6g}")


def _teacher(component: Component) -> str | None:
    """Return the log-probabilities of another model that a term reads beside the policy's, and nothing to judge by."""
    if "logps" not in component.reads or {"scores", "advantages", "token_rewards"} & {*component.reads}:
        return None
    return next((name for name in component.reads if name.endswith("_logps") and name not in OWN), None)


@check(
    "loss_term",
    when=lambda component: _teacher(component) is not None,
    fix="Minimise a divergence from the other model: its gradient is positive where the policy is more certain.",
)
def towards_the_teacher(subject: Subject) -> None:
    """Descending brings the policy's log-probabilities nearer to those of the other model that it reads.

    Distillation with the sign turned teaches what the other model would never say.
    """
    case = ArrayCase.of(subject)
    fields, name = case.fields(), _teacher(subject.component)
    assert name
    gap = np.where(fields["mask"], fields["logps"] - fields[name], 0)
    pull = float((case.run(fields).gradients["logps"] * gap).sum())
    if pull < -EPSILON:
        raise Failed(f"over the batch, descending moves logps away from {name}: the pull is {pull:.6g}")


@check(
    "loss_term",
    reads=["logps", "scores"],
    fix="Prefer the completion with the higher score: the loss falls as its log-probabilities rise above the other's.",
)
def towards_the_better(subject: Subject) -> None:
    """Descending makes completions with higher scores likelier than those of their prompt with lower ones.

    With the two exchanged, what is rejected is learnt, and the loss falls as it should.
    """
    case = ArrayCase.of(subject)
    fields = batch.with_scores(case.fields(), np.arange(batch.ROWS) % 2)
    gradient = np.where(fields["mask"], case.run(fields).gradients["logps"], 0).sum(axis=1)
    better = fields["scores"] > 0.5
    pull = float(gradient[better].sum() - gradient[~better].sum())
    if pull > EPSILON:
        raise Failed(
            f"scores are 0 or 1, and the gradient by logps is {gradient[better].sum():.6g} in the better completions"
            f" and {gradient[~better].sum():.6g} in the others"
        )


@check(
    "value_loss",
    reads=["values", "old_values", "returns"],
    fix="Take the larger of the clipped and the unclipped error, not the smaller.",
)
def comes_back(subject: Subject) -> None:
    """A value that has moved away from its return since collection, however far, is pulled back.

    Clipping may stop a value on its way towards the return. With the smaller error, it stops what went the wrong way.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    old = fields["old_values"]
    for away in (1.0, 5.0):
        for side in (1.0, -1.0):
            moved = {
                "values": (old + np.float32(side * away)).astype(np.float32),
                "returns": (old - np.float32(side)).astype(np.float32),
            }
            pull = case.run(fields | moved).gradients["values"] * side
            stuck = fields["mask"] & ~(pull > EPSILON)
            if stuck.any():
                row, token = np.argwhere(stuck)[0]
                raise Failed(
                    f"a value that was 1 from its return, and is {1 + away:g} from it now, has the gradient"
                    f" {side * pull[row, token]:.6g}"
                )


@check("value_loss", reads=["values", "returns"], fix="Take the error of every policy token.")
def every_value_is_pulled(subject: Subject) -> None:
    """A value that has not moved since collection, and is far above or below its return, is pulled towards it: at every
    token.

    A critic that learns at the first tokens alone tells nothing about the others, whose advantages it decides.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    own = {name: fields["values"] for name in ("old_values",) if name in fields}
    for side, where in ((1.0, "above"), (-1.0, "below")):
        returns = (fields["values"] - np.float32(1.5 * side)).astype(np.float32)
        gradient = case.run(fields | own | {"returns": returns}).gradients["values"]
        idle = fields["mask"] & ~(gradient * side > EPSILON)
        if idle.any():
            row, token = np.argwhere(idle)[0]
            raise Failed(
                f"values[{row}, {token}] is 1.5 {where} its return, and has the gradient {gradient[row, token]:.6g}"
            )


RATIO = re.compile(r"eps|clip|ratio")
"""In names of hyperparameters, that they bound a ratio."""


def _sided(component: Component) -> list[tuple[str, int]]:
    """Return the float hyperparameters that are bounds of one side, with the side of the ratio."""
    floats = [name for name in component.params if RATIO.search(name) and name not in component.common]
    pairs = [(name, name.removesuffix("_low") + "_high") for name in floats if name.endswith("_low")]
    return [side for low, high in pairs if high in floats for side in ((low, -1), (high, 1))]


@check(
    "policy_loss",
    reads=["logps", "old_logps"],
    when=lambda component: bool(_sided(component)),
    fix="Bound the ratio by 1 - ..._low from below and by 1 + ..._high from above.",
)
def bounds_of_one_side(subject: Subject) -> None:
    """A number called `..._low` matters only where ratios are below 1, and `..._high` only where they are above.

    With the two exchanged, a config that lets ratios rise further, as DAPO's does, lets them fall further instead.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    away = np.linspace(0.05, 1.5, batch.TOKENS, dtype=np.float32)
    for name, side in _sided(subject.component):
        if name not in subject.floats:
            continue
        moved = {"logps": (fields["old_logps"] - np.float32(side) * away).astype(np.float32)}
        moved |= {other: fields["old_logps"] for other in ("rollout_logps",) if other in fields}
        value = subject.floats[name]
        changed = subject.floats | {name: np.float32(0.5 * value)}
        before, after = case.run(fields | moved), case.run(fields | moved, changed)
        if not np.allclose(after.value, before.value, atol=1e-6):
            raise Failed(
                f"where every ratio is {'below' if side > 0 else 'above'} 1, '{name}' = {0.5 * value:g} instead of"
                f" {value:g} changes the loss"
            )


@check("kl", fix="Subtract ref_logps from logps, not the other way round or from old_logps; check the sign.")
def not_negative_on_average(subject: Subject) -> None:
    """It depends on the policy being trained, and its expectation over that policy's samples is not negative: no
    divergence is.

    A penalty with the sign reversed drives the policy away from its reference, and one of another policy has no
    gradient. Where the penalty is part of the reward, `logps` are those at collection.
    """
    if not ArrayCase.of(subject).variables:
        raise Failed(f"it reads {listing(subject.component.reads)}, and nothing of the policy being trained")
    value, _ = expected_kl(subject)
    if value.min() < -1e-3:
        raise Failed(f"where the policies differ, its expectation is {value.min():.6g} nats")


@check(
    "policy_loss",
    reads=["advantages", "logps"],
    when=draws_nothing,
    unless="regularised",
    fix="Choose by the advantage of the token itself, not by the sum or the sign of others.",
)
def no_advantage_of_others(subject: Subject) -> None:
    """Another advantage at one token changes the loss of no other token of the completion.

    With a critic, turns or process rewards the tokens of a completion differ: one would decide how others are clipped.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    mask = fields["mask"]
    before = case.run(fields).value
    for token in np.flatnonzero(mask[ROW])[[0, -1]].tolist():
        for other in (5.0, -5.0):
            advantages = fields["advantages"].copy()
            advantages[ROW, token] = other
            after = case.run(fields | {"advantages": advantages}).value
            changed = mask & ~np.isclose(after, before, rtol=1e-4, atol=1e-6)
            changed[ROW, token] = False
            if changed.any():
                row, place = np.argwhere(changed)[0]
                raise Failed(
                    f"with an advantage of {other:g} at token {token} of completion {ROW} the loss of token {place} of"
                    f" completion {row} is {after[row, place]:.6g} instead of {before[row, place]:.6g}"
                )


@check(
    "policy_loss",
    claim="regularised",
    reads=["advantages", "logps"],
    when=draws_nothing,
    fix="Check the sign of the term that the advantage multiplies: -A · log π is minimised.",
)
def learns_beside_its_regularisation(subject: Subject) -> None:
    """On policy, what the advantages add to the gradient makes completions likelier where they are positive.

    A penalty excuses a gradient that does not vanish with the advantage, not one that points the other way.
    """
    case = ArrayCase.of(subject)
    fields = on_policy(case.fields())
    pull = 0.0
    for sign in (1.0, -1.0):
        advantages = np.where(fields["mask"], np.float32(sign), 0).astype(np.float32)
        without, with_them = (
            case.run(fields | {"advantages": each}).gradients["logps"][fields["mask"]].sum()
            for each in (np.zeros_like(advantages), advantages)
        )
        pull += float(sign * (with_them - without))
    if pull > EPSILON:
        raise Failed(
            f"on policy, advantages of 1 instead of -1 raise the sum of the gradients by logps by {pull:.6g}:"
            " descending makes what is good less likely"
        )


@check(
    "loss_term",
    "policy_loss",
    reads=["demo_logps", "mask"],
    fix="Mask what is about demonstrations with demo_mask alone.",
)
def demonstrations_have_their_own_tokens(subject: Subject) -> None:
    """Which tokens of the completion are the policy's makes no difference to a demonstration's.

    Cut by the mask of a completion, a long demonstration beside a short completion is never learnt to its end.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    before = case.run(fields).gradients.get("demo_logps")
    if before is None:
        return
    mask = fields["mask"].copy()
    mask[:, 2:] = False
    after = case.run(fields | {"mask": mask}).gradients["demo_logps"]
    live = mask.any(axis=1)
    if not np.allclose(after[live] != 0, before[live] != 0):
        row, token = np.argwhere((after != 0) != (before != 0))[0]
        raise Failed(
            f"with completions of two tokens the gradient by demo_logps[{row}, {token}] is {after[row, token]:.6g},"
            f" instead of {before[row, token]:.6g}"
        )

"""Claims about aggregations: the weights of tokens in the loss."""

from __future__ import annotations

import itertools

import numpy as np

from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import same
from dovetail_kit.conformance.subject import Subject

SHAPE = frozenset(("mask", "lengths", "group_ids", "role_ids", "turns", "turn_mask", "anchor_ids"))
"""Fields that say which tokens belong together."""
MANY = 57
"""Times the tokens of the batch: more than half precision can count."""


@check("loss_agg", unless="leaves_out", fix="Give every policy token a share of the whole, or declare leaves_out=True.")
def positive_weights(subject: Subject) -> None:
    """Every policy token has a positive weight.

    A token without weight is not trained, and one with a negative weight is trained the wrong way round.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    weights = case.run(fields).value
    if not (weights[fields["mask"]] > 0).all():
        row, token = np.argwhere(~(weights > 0) & fields["mask"])[0]
        raise Failed(f"the weight at [{row}, {token}] is {weights[row, token]:.6g}")


@check("loss_agg", fix="Read the mask, group_ids and the like; whatever depends on the policy belongs in the loss.")
def linearity(subject: Subject) -> None:
    """The weights do not depend on the policy being trained, so the total is linear in the loss of every token.

    A weight that depends on the policy adds gradients of its own, which no loss asks for.
    """
    case = ArrayCase.of(subject)
    if case.variables:
        raise Failed(f"it reads {', '.join(case.variables)}, which every forward pass of an update changes")


@check(
    "loss_agg",
    claim="sums_to_one",
    fix="Divide by the sum of the numerators over the rows and turns that have a policy token.",
)
def normaliser(subject: Subject) -> None:
    """The weights add up to 1, so the loss is a mean whatever the lengths.

    Otherwise the learning rate depends on lengths or on the number of completions.
    """
    case = ArrayCase.of(subject)
    for seed in range(2):
        fields = case.fields(seed)
        mask = fields["mask"] if seed == 0 else fields["mask"][::-1].copy()
        total = case.run(fields | {"mask": mask}).value.sum()
        same(total, 1.0, "the sum of the weights")
    later = batch.with_mask(case.fields(), _without_first_turns(case.fields()["mask"]))
    if {"turns", "turn_mask"} & {*later}:
        same(case.run(later).value.sum(), 1.0, "where the first of several turns has no policy token: the sum of them")
    many = _repeated(case.fields(), 1, MANY)
    same(case.eager(many).value.sum(), 1.0, f"the sum of the weights of {many['mask'].sum()} tokens", within=1e-4)


@check(
    "loss_agg",
    unless="neither_mean_nor_sum",
    fix="Divide by the count itself, guarded by jnp.maximum(count, 1), not by count + 1.",
)
def mean_or_sum(subject: Subject) -> None:
    """If all completions come twice, or have their tokens twice, the total of the weights stays, or it doubles: for
    more completions of a prompt the same as for more prompts.

    A mean stays, a sum doubles. Anything between them changes the learning rate with the size of the batch.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    once = float(case.run(fields).value.sum())
    twice = {"completions": _repeated(fields, 0), "tokens": _repeated(fields, 1)}
    if "group_ids" in fields:
        labels = np.concatenate([fields["group_ids"]] * 2)
        twice["completions of the same prompts"] = twice["completions"] | {"group_ids": labels}
    ratios = {what: float(case.eager(more).value.sum()) / once for what, more in twice.items()}
    for what, ratio in ratios.items():
        if min(abs(ratio - 1), abs(ratio - 2)) > 1e-3:
            raise Failed(f"with all {what} twice, the total of the weights is {ratio:.5g} times what it was")
    more, within = ratios["completions"], ratios.get("completions of the same prompts", ratios["completions"])
    if abs(more - within) > 1e-3:
        raise Failed(
            f"with twice the completions of each prompt the total of the weights is {within:.5g} times what it was, and"
            f" {more:.5g} times with twice the prompts"
        )


def _without_first_turns(mask: np.ndarray) -> np.ndarray:
    """Return a mask that leaves out the first turn of episodes of several."""
    turns = batch.make_turns()["turns"]
    return mask & ((turns > 0) | (turns.max(axis=1, keepdims=True) == 0))


def _repeated(fields: batch.Fields, axis: int, times: int = 2) -> batch.Fields:
    """Return fields in which every completion comes twice, in distinct groups, or every token several times."""
    label = int(np.abs(batch.GROUP_IDS).max()) + 1
    found = {}
    for name, value in fields.items():
        if axis == 0 and batch.is_array(value):
            again = value + np.int32(2 * label) if name == "group_ids" else value
            found[name] = np.concatenate([value, again])
        elif axis == 1 and batch.has_tokens(value):
            found[name] = np.concatenate([value] * times, axis=1)
        else:
            found[name] = times * value if axis == 1 and name == "lengths" else value
    return found


def _alike(fields: batch.Fields) -> batch.Fields:
    """Return a batch in which all tokens have the same numbers, such as the age of the weights that sampled them."""
    return {
        name: np.full_like(value, value.flat[0]) if name not in SHAPE and batch.is_array(value) else value
        for name, value in fields.items()
    }


@check(
    "loss_agg",
    unless="leaves_out",
    fix="Divide by the length, or by a power of it: weights fall as completions grow. If long completions are to weigh"
    " more, declare expected_failures={'longer_is_no_heavier': 'why'}; if some tokens are to have no weight, declare"
    " leaves_out=True.",
)
def longer_is_no_heavier(subject: Subject) -> None:
    """A token of a longer completion weighs no more than one of a shorter completion of the same prompt, if it is like
    that one in everything else.

    With the power of the length turned round, a run is about its longest completions, and they get longer still.
    """
    case = ArrayCase.of(subject)
    fields = _alike(case.fields())
    if "role_ids" in fields:  # a role may have a share of its own, however many tokens it has
        fields |= {"role_ids": np.zeros_like(fields["role_ids"])}
    rows = [0, 2, 5, 7]  # of one prompt
    mask = np.zeros_like(fields["mask"])
    for row, length in zip(rows, (1, 2, 4, 9), strict=True):
        mask[row, :length] = True
    weights = case.run(batch.with_mask(fields, mask)).value
    means = [float(weights[row][mask[row]].mean()) for row in rows]
    if any(later > earlier * 1.001 for earlier, later in itertools.pairwise(means)):
        told = ", ".join(f"{mean:.5g}" for mean in means)
        raise Failed(f"the tokens of completions with 1, 2, 4 and 9 of them weigh {told} on average")

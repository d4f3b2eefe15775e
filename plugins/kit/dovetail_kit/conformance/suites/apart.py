"""Claims about what belongs together: roles, the greedy completion of a prompt, the reward of a turn."""

from __future__ import annotations

import jax
import numpy as np

from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import same
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.memory import first_state, next_state
from dovetail_kit.conformance.suites.numbers import has_state

LONG_ROWS = (5, 7)
"""Two rows of one group with three turns each, so that each turn of one has its like in the other."""


@check(
    "advantage",
    reads=["scores", "role_ids", "state"],
    when=has_state,
    unless="whitened",
    fix="Take the mean of each role: jax.ops.segment_sum over role_ids, of scores and of counts.",
)
def roles_apart(subject: Subject) -> None:
    """Higher scores of one role do not change the next advantages of another.

    Roles play against one another: a baseline of all of them rewards a role for what the others did.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    other = fields["role_ids"] == 0
    found = []
    for score in (0.0, 5.0):
        scores = np.where(other, np.float32(score), fields["scores"])
        state = next_state(subject, first_state(subject), batch.with_scores(fields, scores))
        found.append(case.run(fields | {"state": jax.tree.map(np.asarray, state)}).value)
    same(
        found[1][~other], found[0][~other], "after scores of 5 instead of 0 in role 0: the advantage, in role 1, of row"
    )


@check(
    "advantage",
    reads=["greedy_scores"],
    unless="whitened",
    fix="Subtract greedy_scores row by row: it has the score of each completion's own prompt.",
)
def greedy_scores_apart(subject: Subject) -> None:
    """The greedy score of one prompt does not change the advantages of the completions of another.

    A mean of the greedy scores makes easy prompts look like good completions.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    own = np.array(batch.GROUP_IDS) == batch.GROUP_IDS[0]
    low, high = (
        case.run(fields | {"greedy_scores": np.where(own, np.float32(score), 0.5).astype(np.float32)}).value
        for score in (0.0, 1.0)
    )
    same(high[~own], low[~own], "with another greedy score of another prompt: the advantage of row")


@check(
    "advantage",
    reads=["turn_rewards", "turns"],
    fix="A turn is credited with its own reward too: r_k + gamma · what follows.",
)
def a_turn_earns_its_reward(subject: Subject) -> None:
    """The reward of some turn changes the advantages of the tokens of that turn.

    Credited to the turns before it alone, a reward teaches nothing to the turn that earned it. Of which turns the
    rewards count differs: some methods leave the last ones to the outcome.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for row in LONG_ROWS:
        for turn in np.unique(fields["turns"][row][fields["mask"][row]]):
            of_turn = fields["mask"][row] & (fields["turns"][row] == turn)
            found = []
            for reward in (5.0, -5.0):
                rewards = fields["turn_rewards"].copy()
                rewards[row, turn] = reward
                found.append(case.run(fields | {"turn_rewards": rewards}).value[row][of_turn])
            if not np.allclose(*found, atol=1e-6):
                return
    raise Failed(f"a reward of 5 or of -5 in any turn of row {LONG_ROWS[0]} or {LONG_ROWS[1]} changes nothing in it")


OF_TURNS = frozenset({"turn_rewards", "turn_mask", "anchor_ids", "void_turns", "old_turn_values", "turn_values"})
"""Fields with a column for each turn, which turns index."""


@check(
    "advantage",
    reads=["turns"],
    when=lambda component: not OF_TURNS & {*component.reads},
    fix="Count from the token's own turn: gamma ** (turn of the reward - turn of the token).",
)
def turns_have_no_first(subject: Subject) -> None:
    """If all turns have numbers that are larger by two, nothing changes.

    A discount that is counted from the first turn gives the later ones too little credit, whatever they earn.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    mask = fields["mask"]
    for given in (fields, batch.with_scores(fields, np.linspace(-1, 1, batch.ROWS))):
        later = given | {"turns": np.where(mask, given["turns"] + 2, given["turns"]).astype(given["turns"].dtype)}
        same(case.run(later).value, case.run(given).value, "with all turns two later: the advantage", where=mask)

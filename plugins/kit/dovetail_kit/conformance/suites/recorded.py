"""Claims about what agent loops record of the turns of an episode, and in which order."""

from __future__ import annotations

from typing import Final

import numpy as np

from dovetail.protocols import Call
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.loops import HANG_UP, LOSSES, LOST, episode_of, open_loop, play, scripts_of

FIRST_SUM, SECOND_SUM = (100_000, 20_202), (300_000, 40_404)
"""Numbers whose sums stand in no other message."""
FULL: Final = 3
"""The episode that reaches its token limit."""


@check(
    "agent_loop", claim="turns", fix="Write the reward of a step to the turn that it answers, turn_rewards[row, turn]."
)
def rewards_of_their_turns(subject: Subject) -> None:
    """The reward that the environment gives for a turn is that turn's in the record.

    A reward in the column of the turn before or after teaches the policy to repeat something else than what earned it.
    """
    loop, written = open_loop(subject)
    _, episodes = play(loop, scripts_of(written))
    told = False
    for row, seen in enumerate(episodes.states):
        if seen is None:  # it has not asked the environment
            continue
        told |= bool(seen)
        for turn, reward in seen:
            if not np.isclose(found := episodes.turn_rewards[row, turn], reward):
                raise Failed(
                    f"the environment gives {reward:g} for turn {turn} of episode {row}, whose reward is {found:g}"
                )
    if not told:
        raise Inapplicable("the environment is never asked, or its states are not in the record")


@check("agent_loop", claim="turns", fix="Return what follows the turn of rows[i] at place i, whatever the rows are.")
def rows_in_any_order(subject: Subject) -> None:
    """What follows a turn goes to the episode of that turn, also where the last rows come first.

    Rows are named because episodes end, and wait for one another, at different times.
    """
    loop, written = open_loop(subject)
    expected, found = (play(loop, scripts_of(written), turned=turned) for turned in (False, True))
    for row in range(len(expected[0])):
        if (seen := episode_of(row, *found)) != (before := episode_of(row, *expected)):
            raise Failed(f"if the last rows come first, episode {row} is {seen}, not {before}")


@check("agent_loop", claim="turns", fix="Put the results of a turn's calls in the order in which they were written.")
def results_in_order(subject: Subject) -> None:
    """The results of a turn with two calls come in the order of the calls.

    Most formats do not say which call a result belongs to: the policy would read each as the other's.
    """
    loop, written = open_loop(subject)
    calls = [Call("add", {"a": a, "b": b}) for a, b in (FIRST_SUM, SECOND_SUM)]
    text = "\n".join(written.write(call) for call in calls)
    if len(written.parse(text).calls) != len(calls):
        raise Inapplicable("its format has one call in a turn")
    said, episodes = play(loop, [[text, "It is done."], *scripts_of(written)[1:]])
    spoken = " ".join(str(message["content"]) for message in episodes.conversations[0])
    for read, where in ((said[0][0] or "", "what follows the turn"), (spoken, "the conversation")):
        first, second = (read.rfind(str(sum(numbers))) for numbers in (FIRST_SUM, SECOND_SUM))
        if -1 < second < first:
            raise Failed(f"of {text!r}, the result of the second call comes first in {where}: {read!r}")


@check("agent_loop", claim="turns", fix="Set `failed` where a tool or the environment was lost, and there alone.")
def failures_are_told(subject: Subject) -> None:
    """An episode that loses the connection to a tool or to the environment has failed, and one that reaches its token
    limit has not.

    Episodes that have failed are left out: a policy would be trained on those that were broken off through no fault of
    its own, or never on long ones.
    """
    loop, written = open_loop(subject)
    for who, texts in (("lose", scripts_of(written)[LOST]), ("dice", [HANG_UP])):
        scripts = scripts_of(written)
        scripts[LOST] = texts
        before = LOSSES.count(who)
        try:
            _, episodes = play(loop, scripts, full=FULL)
        except ConnectionError:  # a run may end there: nobody trains on the episode
            continue
        if episodes.failed[FULL]:
            raise Failed(f"episode {FULL} reaches its token limit, and counts as failed")
        if LOSSES.count(who) > before and not episodes.failed[LOST]:
            raise Failed(f"episode {LOST} loses its connection, and does not count as failed")

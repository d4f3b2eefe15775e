"""Claims about episodes that do not wait for one another: each goes on by itself, in threads that come and go."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from dovetail.errors import DovetailError
from dovetail.protocols import Episodes, Turn
from dovetail_kit.conformance import gate
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites import loops
from dovetail_kit.conformance.suites.episodes import NUMBERS, STEADY, examples
from dovetail_kit.conformance.suites.tools import called, tool_of

SCRIPTS: Final = (NUMBERS, ("left", "1", *STEADY), ("2", "right", "0", "7 or 8?"), ("",), tuple(reversed(NUMBERS)))
"""What policies write in episodes of an environment, turn by turn; the last text is repeated."""
TURNS: Final = 8
ASKED: Final = 8
"""So many calls of a tool are made at a time."""

Played = tuple[Sequence[Sequence[str | None]], Episodes]


@check(
    "agent_loop",
    claim="turns",
    fix="Answer a turn in one function of its row, self.then([row], [turn], [finish])[0] if nothing else, and count,"
    " draw and record by that row; take `alone` out if rounds are needed.",
)
def alone_is_as_in_rounds(subject: Subject) -> None:
    """Episodes whose turns are answered one by one (`alone`) are those of rounds, whichever is over first.

    Whether episodes wait for one another is up to the engine: with another one, a run would learn something else.
    """
    loop, scripts, expected = _in_rounds(subject)
    rows = range(len(scripts))
    for order, which in ((rows, "first"), (rows[::-1], "last")):
        running = loops.begun(loop)
        with loops.quiet():
            said = {row: _alone(running, row, scripts[row], loop.max_turns) for row in order}
        _see_that_equal(
            expected,
            running,
            [said[row] for row in rows],
            f"answered by `alone`, the {which} to its end before the others",
        )


@check(
    "agent_loop",
    claim="turns",
    fix="Keep nothing of a turn in the object, and hold a lock (with self.lock:) around what calls the tokenizer, a"
    " tool in this process or the interaction, which are not made for threads.",
)
def alone_in_threads(subject: Subject) -> None:
    """Episodes that several threads have answered at a time are those of rounds, and what is not made for threads is
    in one at a time: the tokenizer, a tool in this process, the interaction.

    What two episodes share is right in every test, and in some step of a run one reads what was meant for another.
    """
    loop, scripts, expected = _in_rounds(subject)
    with gate.opened() as threads, loops.quiet():
        running = loops.begun(loop)
        asked = [functools.partial(_alone, running, row, texts, loop.max_turns) for row, texts in enumerate(scripts)]
        said = gate.side_by_side(asked)
    if said is None:
        raise Failed(
            f"answered from threads, an episode is not over after {gate.DEADLINE:g} s: is a lock never released?"
        )
    for each in said:
        if isinstance(each, Exception):
            raise each
    _see_that_equal(expected, running, said, "answered from several threads at a time")
    if threads.crowded:
        raise Failed(f"two threads at a time are in {' and in '.join(sorted(threads.crowded))}")


def _in_rounds(subject: Subject) -> tuple[Any, Sequence[Sequence[str]], Played]:
    """Open a loop; return it with what the policy writes, and the episodes of rounds.

    Raises:
        Inapplicable: if it answers rounds alone.
    """
    loop, written = loops.open_loop(subject)
    if not hasattr(loops.begun(loop), "alone"):
        raise Inapplicable("its episodes have no method `alone`, so that each waits for the slowest of its round")
    scripts = loops.scripts_of(written)
    return loop, scripts, loops.play(loop, scripts)


def _alone(running: Any, row: int, script: Sequence[str], most: int) -> list[str | None]:
    """Return what follows each turn of an episode that goes on by itself."""
    said: list[str | None] = []
    for turn in range(most):
        ids = [*loops.encoded(script[min(turn, len(script) - 1)]), loops.EOS]
        try:
            found = running.alone(row, ids, "eos")
        except Exception as error:
            told = f"`alone` raises {type(error).__name__} ({error}) after turn {turn} of episode {row}"
            raise Failed(f"{told}, which `then` answers: this ends the episodes of all others") from error
        said.append(loops.read(found))
        if found is None:
            return said
    raise Failed(f"answered by `alone`, episode {row} goes on after max_turns = {most} turns")


def _see_that_equal(expected: Played, running: Any, said: Sequence[Sequence[str | None]], how: str) -> None:
    try:
        record = running.result([False] * len(said))
    except Exception as error:  # it has more turns of an episode than there were, for one
        raise Failed(f"{how}, the episodes have no record: {type(error).__name__}: {error}") from error
    for row in range(len(said)):
        meant, seen = (loops.episode_of(row, *played) for played in (expected, (said, record)))
        for name in meant:
            if seen[name] != meant[name]:
                raise Failed(f"{how}, episode {row} has {name} {seen[name]!r:.200}, and {meant[name]!r:.200} in rounds")


@check(
    "interaction",
    fix="Keep what belongs to an episode in the state that reset and step return: not in the object, where the next"
    " episode overwrites it, nor by thread, which another turn need not have.",
)
def episodes_take_turns(subject: Subject) -> None:
    """Episodes that are at their turns alternately, each turn in another thread, go on as each does by itself.

    Agent loops have an episode's turns answered as they come, from whatever thread is free: an episode that reads what
    belongs to another is judged by the other's answer.
    """
    interaction: Any = subject.bind()
    asked = [*zip(examples(interaction, len(SCRIPTS)), SCRIPTS, strict=True)]
    expected = [_by_itself(interaction, example, script, seed) for seed, (example, script) in enumerate(asked)]
    states = [_reset(interaction, example, seed) for seed, (example, _) in enumerate(asked)]
    going = [*range(len(asked))]
    for turn in range(TURNS):
        for row in going[:: -1 if turn % 2 else 1]:
            step = functools.partial(_stepped, interaction, states[row], asked[row][1], turn, row)
            found = (gate.side_by_side([step]) or [TimeoutError("it does not return")])[0]
            if isinstance(found, BaseException):
                told = f"{type(found).__name__}: {found}"
                raise Failed(f"turn {turn} of an episode is answered by itself, and in another thread with {told}")
            if (seen := _told(found)) != (meant := expected[row][turn]):
                raise Failed(
                    f"beside other episodes, turn {turn} of one is answered with {seen:.160}, and by itself with"
                    f" {meant:.160}"
                )
            states[row] = found.state
        going = [row for row in going if turn + 1 < len(expected[row])]


def _by_itself(interaction: Any, example: Mapping[str, Any], script: Sequence[str], seed: int) -> list[str]:
    """Return the answers of an environment in an episode that nothing comes between."""
    state, answers = _reset(interaction, example, seed), list[str]()
    for turn in range(TURNS):
        step = _stepped(interaction, state, script, turn, seed)
        answers.append(_told(step))
        if step.done:
            break
        state = step.state
    return answers


def _reset(interaction: Any, example: Mapping[str, Any], seed: int) -> Any:
    try:
        return interaction.reset(example, np.random.default_rng(seed))[0]
    except (DovetailError, OSError) as error:
        raise Inapplicable(f"it begins no episode here: {error}") from None


def _stepped(interaction: Any, state: Any, script: Sequence[str], turn: int, seed: int) -> Any:
    said = Turn(text=script[min(turn, len(script) - 1)], number=turn)
    return interaction.step(state, said, np.random.default_rng([seed, turn]))


def _told(step: Any) -> str:
    return repr((step.messages, step.reward, step.done))


@check(
    "tool",
    when=lambda component: component.declares.get("deterministic", True),
    fix="Open what belongs to a thread, such as a connection of sqlite3 or an event loop, in the call; or share it:"
    " sqlite3.connect(path, check_same_thread=False).",
)
def answers_in_another_thread(subject: Subject) -> None:
    """In another thread than that in which it was built and first called, a call gets the same answer.

    Episodes that do not wait for one another have their tools called from whatever thread is free.
    """
    tool = tool_of(subject)
    for text in STEADY:
        here = called(tool, text)
        (there,) = gate.side_by_side([functools.partial(called, tool, text)]) or [TimeoutError("it does not return")]
        if isinstance(there, Inapplicable):
            raise there
        if repr(here) != repr(there):
            raise Failed(f"called with {text!r} it answers {here!r:.160}, and in another thread {there!r:.160}")


@check(
    "tool",
    claim="own_process",
    fix="Keep nothing of a call in the object or the module, such as a file of one name; or drop the claim.",
)
def answers_side_by_side(subject: Subject) -> None:
    """Several threads that call it at a time get the answers that one gets after another.

    It says that it has a process of its own for each call, so that its calls run side by side.
    """
    tool = tool_of(subject)
    texts = [f"{text} + {number}" for number, text in enumerate(STEADY * ASKED)][:ASKED]
    expected = [called(tool, text) for text in texts]
    found = gate.side_by_side([functools.partial(called, tool, text) for text in texts])
    if found is None:
        raise Failed(f"{ASKED} calls at a time are not over after {gate.DEADLINE:g} s")
    for text, meant, seen in zip(texts, expected, found, strict=True):
        if repr(meant) != repr(seen):
            raise Failed(f"called with {text!r} it answers {meant!r:.160}, and beside other calls {seen!r:.160}")

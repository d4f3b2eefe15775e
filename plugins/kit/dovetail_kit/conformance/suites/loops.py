"""Claims about agent loops, which are opened with a tokenizer of letters, a few tools and an environment."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np

from dovetail.errors import ConfigError
from dovetail.host.episodes import Generators
from dovetail.protocols import ASSISTANT, Call, Episodes, Message, Step, Tool, ToolFormat, Turn
from dovetail.registry import current
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.gate import passing
from dovetail_kit.conformance.subject import Subject

EOS: Final = 0
PROMPTS, SAMPLES = 2, 3
LOSSES: Final[list[str]] = []
"""Who has lost a connection in this process."""

Seen = tuple[tuple[int, float], ...]
LOST: Final = 4
"""The episode whose first call loses its connection, which is not the policy's fault."""
TOKENIZER, INTERACTION, TOOL = "the tokenizer", "the interaction", "a tool"
HANG_UP: Final = "Hang up."
"""What makes the environment lose its connection."""


class Letters:
    """A tokenizer of code points without a chat template; 0 ends a turn."""

    eos_ids = (EOS,)
    pad_id = EOS
    vocab_size = 0x110000

    def encode(self, text: str) -> list[int]:
        """Return the code points."""
        with passing(TOKENIZER):
            return encoded(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text without ends of turns."""
        with passing(TOKENIZER):
            return decoded(ids)

    def render(self, prompt: Any, tools: Any = None) -> str:
        """Return the texts of the messages."""
        return prompt if isinstance(prompt, str) else "".join(str(message["content"]) for message in prompt)

    def bridge(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of messages."""
        return self.encode("".join(f"[{message['role']}: {message['content']}]" for message in messages))


def encoded(text: str) -> list[int]:
    """Return the ids of a text."""
    return [ord(letter) for letter in text]


def decoded(ids: Sequence[int]) -> str:
    """Return the text of ids, without ends of turns."""
    return "".join(chr(token) for token in ids if token != EOS)


@attrs.frozen
class Dice:
    """An environment that throws a die after each turn, rewards the turn with it, and ends after the third.

    Its state has the number and the reward of each turn that it has seen.
    """

    columns = ()

    def reset(self, example: Any, rng: np.random.Generator) -> tuple[Seen, Sequence[Message]]:
        """Begin with no throw."""
        return (), ({"role": "user", "content": str(rng.integers(1000))},)

    def step(self, state: Seen, turn: Turn, rng: np.random.Generator) -> Step:
        """Throw.

        Raises:
            ConnectionError: if it is told to hang up.
        """
        if turn.text == HANG_UP:
            LOSSES.append("dice")
            raise ConnectionError("nobody is there")
        with passing(INTERACTION):
            thrown = int(rng.integers(1, 1000))
        said = {"role": "user", "content": str(thrown)}
        return Step(
            state=(*state, (turn.number, float(thrown))), messages=(said,), reward=float(thrown), done=len(state) == 2
        )


def add(a: int, b: int) -> int:
    """Add.

    Args:
        a: a number.
        b: another one.
    """
    with passing(TOOL):
        return a + b


def lose(a: int, b: int) -> int:
    """Lose the connection.

    Args:
        a: a number.
        b: another one.
    """
    LOSSES.append("lose")
    raise ConnectionError("nobody is there")


@check("agent_loop", fix="Declare turns=True if `open` returns a loop, and return None from `open` if not.")
def opens_as_declared(subject: Subject) -> None:
    """A loop that declares `turns` opens one that has limits; another one opens none.

    The plan takes the fields of turns from the declaration, before anything is opened.
    """
    declared = bool(subject.component.declares.get("turns"))
    if not declared:
        if (found := subject.bind().open(Letters(), None, (), None)) is not None:
            raise Failed(f"it does not declare turns, and opens {type(found).__name__}")
        return
    loop, _ = _opened(subject)
    if loop is None:
        raise Failed("it declares turns, and opens None, which is for single completions")
    if loop.max_turns < 1 or (loop.max_turn_tokens is not None and loop.max_turn_tokens < 1):
        raise Failed(f"max_turns = {loop.max_turns}, max_turn_tokens = {loop.max_turn_tokens}: no turn has room")


@check("agent_loop", claim="turns", fix="Return None after the last turn, and a row of every episode from `result`.")
def episodes_end(subject: Subject) -> None:
    """Whatever the policy writes, every episode ends within `max_turns`, and the record has all of its turns.

    An episode that does not end stops a run; a turn that is not in the record has no reward.
    """
    loop, written = open_loop(subject)
    said, episodes = play(loop, scripts_of(written))
    shape = (PROMPTS * SAMPLES, loop.max_turns)
    for name in ("turn_rewards", "turn_mask", "anchor_ids", "void_turns"):
        if (found := np.shape(getattr(episodes, name))) != shape:
            raise Failed(f"{name} has the shape {found}, not {shape}: [episode, turn], with max_turns turns")
    for name in ("tool_calls", "tool_errors", "ends", "failed", "conversations", "states"):
        if (found := len(getattr(episodes, name))) != len(said):
            raise Failed(f"{name} has {found} rows for {len(said)} episodes")
    for row, turns in enumerate(said):
        if (counted := int(episodes.turn_mask[row].sum())) != len(turns):
            raise Failed(f"episode {row} has {len(turns)} turns, and turn_mask has {counted}")
        spoken = sum(message["role"] == ASSISTANT for message in episodes.conversations[row])
        if spoken != len(turns):
            raise Failed(f"episode {row} has {len(turns)} turns, and its conversation has {spoken} of the policy")
        if not str(episodes.ends[row]):
            raise Failed(f"episode {row} has no reason for its end")
    if not np.isfinite(episodes.turn_rewards).all() or episodes.turn_rewards[~episodes.turn_mask].any():
        raise Failed("turn_rewards are not finite, or not zero outside turn_mask")
    for full in range(len(said)):
        said, episodes = play(loop, scripts_of(written), full=full)
        if (counted := int(episodes.turn_mask[full].sum())) != len(said[full]):
            raise Failed(f"episode {full} has {len(said[full])} turns at its token limit, and turn_mask has {counted}")


@check(
    "agent_loop", claim="turns", fix="Keep what belongs to an episode in its row, and draw from generator(row=, turn=)."
)
def episodes_are_apart(subject: Subject) -> None:
    """What the others write, and that one of them fails through no fault of the policy, changes no episode.

    Otherwise a completion would depend on the batch, and an episode that fails would spoil a step.
    """
    loop, written = open_loop(subject)
    scripts = scripts_of(written)
    said, episodes = play(loop, scripts)
    if spoilt := set(episodes.failed.nonzero()[0].tolist()) - {LOST}:
        raise Failed(f"the connection of episode {LOST} is lost, and episodes {sorted(spoilt)} failed")
    for row in range(len(scripts)):
        others = [scripts[other if other == row else 0] for other in range(len(scripts))]
        again, played = play(loop, others)
        if (seen := episode_of(row, again, played)) != (before := episode_of(row, said, episodes)):
            raise Failed(f"beside other episodes, episode {row} is {seen}, not {before}")


@check("agent_loop", claim="turns", fix="Draw from the generators that `begin` is given, and from nothing else.")
def same_turns_same_episodes(subject: Subject) -> None:
    """The same turns and generators give the same episodes, and nothing is drawn from generators of the process.

    Otherwise a run that was killed could not be resumed with the same bytes.
    """
    loop, written = open_loop(subject)
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    found = [[episode_of(row, *played) for row in range(PROMPTS * SAMPLES)] for played in _twice(loop, written)]
    if found[0] != found[1]:
        row = next(row for row, pair in enumerate(zip(*found, strict=True)) if pair[0] != pair[1])
        raise Failed(f"played again, episode {row} is {found[1][row]}, not {found[0][row]}")
    if before != (random.getstate(), repr(np.random.get_state())):  # noqa: NPY002
        raise Failed("it draws from a random number generator of the whole process")


def _twice(loop: Any, written: ToolFormat) -> Iterator[tuple[list[list[str | None]], Episodes]]:
    return (play(loop, scripts_of(written)) for _ in range(2))


def open_loop(subject: Subject) -> tuple[Any, ToolFormat]:
    """Open a loop with tools and an environment, or with one of them or neither if it refuses; any format of calls.

    Raises:
        Inapplicable: if it takes none, or opens nothing.
    """
    loop, written = _opened(subject)
    if loop is None:
        raise Inapplicable("it opens no loop; see opens_as_declared")
    return loop, written


def _opened(subject: Subject) -> tuple[Any, ToolFormat]:
    tools = [Tool(name=function.__name__, function=function, target=function) for function in (add, lose)]
    refused = []
    for interaction, offered in ((Dice(), tools), (Dice(), []), (None, tools), (None, [])):
        for name in current().names("tool_format"):
            written: Any = current().get("tool_format", name).bind()
            try:
                return subject.bind().open(Letters(), interaction, offered, written), written
            except ConfigError as error:
                refused.append(str(error))
    raise Inapplicable(f"it opens with none of the formats of calls: {refused[0] if refused else 'there is none'}")


def scripts_of(written: ToolFormat) -> list[list[str]]:
    """Return what the policy writes in each episode, turn by turn; the last text is repeated."""
    call = written.write(Call("add", {"a": 1, "b": 2}))
    return [
        ["It is 3."],
        [call, "It is 3."],
        [call[: len(call) // 2], written.write(Call("nothing", {})), "7"],
        [call],
        [written.write(Call("lose", {"a": 1, "b": 2})), "It is 3."],
        ["", written.write(Call("add", {"a": "x"})), "left"],
    ]


def play(
    loop: Any, scripts: Sequence[Sequence[str]], *, turned: bool = False, full: int | None = None
) -> tuple[list[list[str | None]], Episodes]:
    """Return what follows each turn of each episode, and the record.

    Args:
        loop: an open loop.
        scripts: what the policy writes in each episode, turn by turn.
        turned: whether the last rows come first.
        full: the episode that reaches its token limit after the first turn.

    Raises:
        Failed: if an episode does not end, or is answered with something other than ids.
    """
    said = [list[str | None]() for _ in scripts]
    running = begun(loop)
    rows = list(range(len(scripts)))[:: -1 if turned else 1]
    for turn in range(loop.max_turns):
        texts = [scripts[row][min(turn, len(scripts[row]) - 1)] for row in rows]
        for row, ids in zip(rows, _answered(running, rows, texts), strict=True):
            said[row].append(read(ids))
        rows = [row for row in rows if said[row][-1] is not None and row != full]
        if not rows:
            return said, running.result([row == full for row in range(len(scripts))])
    raise Failed(f"episodes {rows} go on after max_turns = {loop.max_turns} turns")


def begun(loop: Any) -> Any:
    """Begin episodes, `SAMPLES` of each of `PROMPTS` prompts."""
    words = np.arange(PROMPTS * SAMPLES * 2, dtype=np.uint32).reshape(PROMPTS, SAMPLES, 2)
    running = loop.begin([{"prompt": "What?"}] * PROMPTS, SAMPLES, Generators(words))
    if len(running.prompts) != PROMPTS:
        raise Failed(f"{len(running.prompts)} prompts for {PROMPTS} examples")
    return running


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Leave out the warning that the connection of an episode is lost."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _answered(running: Any, rows: Sequence[int], texts: Sequence[str]) -> Sequence[Any]:
    """Return what follows turns."""
    turns = [[*encoded(text), EOS] for text in texts]
    with quiet():
        answers = running.then(list(rows), turns, ["eos"] * len(rows))
    if len(answers) != len(rows):
        raise Failed(f"{len(rows)} turns have ended, and {len(answers)} are answered")
    return answers


def read(ids: Any) -> str | None:
    """Return what the policy reads after a turn; None if its episode is over.

    Raises:
        Failed: if that is not ids of the tokenizer.
    """
    if ids is None:
        return None
    if not all(isinstance(token, int) and 0 <= token < Letters.vocab_size for token in ids):
        raise Failed(f"a turn is answered with {ids!r:.60}, not with ids of the tokenizer")
    return decoded(ids)


def episode_of(row: int, said: Sequence[Any], episodes: Episodes) -> Mapping[str, Any]:
    """Return everything about one episode."""
    names = ("turn_rewards", "turn_mask", "void_turns", "tool_calls", "tool_errors", "ends", "failed", "states")
    found = {name: np.asarray(getattr(episodes, name)[row]).tolist() for name in names}
    return {"answers": said[row], **found, "messages": [dict(message) for message in episodes.conversations[row]]}

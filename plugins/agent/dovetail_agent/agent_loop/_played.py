"""The episodes of `tool_agent` in progress: what a turn says, what follows it, and why an episode ends."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from dovetail.errors import DovetailWarning, RunError
from dovetail.protocols import ASSISTANT, Call, Episodes, Interaction, Message, Parsed, Turn
from dovetail_agent.agent_loop._owner import anchor_of, calls_in, raised, see_that_right
from dovetail_agent.agent_loop._toolbox import INTERACTION
from dovetail_agent.runner import Ran

if TYPE_CHECKING:
    from dovetail_agent.agent_loop.tool_agent import OpenToolAgent

ANSWERED: Final = "answered"
DONE: Final = "done"
MAX_TURNS: Final = "max_turns"
MAX_TOKENS: Final = "max_tokens"
TURN_CUT: Final = "turn_cut"
INVALID: Final = "invalid"
FAILED: Final = "failed"
"""Why an episode ended: the policy called no tool and there is no environment; the environment ended it; it reached a
limit on turns, tokens, tokens of a turn, or invalid calls; or it failed through no fault of the policy."""


@attrs.define(kw_only=True)
class Episode:
    """One episode so far."""

    state: Any
    messages: list[Message] = attrs.field(factory=list)
    rewards: list[float] = attrs.field(factory=list)
    anchors: list[Hashable] = attrs.field(factory=list)
    void: list[bool] = attrs.field(factory=list)
    calls: int = 0
    errors: int = 0
    invalid: int = 0
    end: str = ""
    metrics: dict[str, float] = attrs.field(factory=dict)
    kept: dict[str, Any] = attrs.field(factory=dict)
    """The states of the tools, by name."""


@attrs.frozen(kw_only=True)
class Read:
    """The outcome of parsing a turn."""

    turn: Turn
    error: str | None
    calls: tuple[Call, ...]


@attrs.frozen(kw_only=True)
class Played:
    """Episodes in progress; see `dovetail.protocols.Running`."""

    loop: OpenToolAgent
    prompts: tuple[str, ...]
    episodes: tuple[Episode, ...]
    generator: Callable[..., np.random.Generator]
    lock: Any = attrs.field(factory=threading.RLock, repr=False)
    """Held by whoever calls the tool format, the interaction or the tokenizer, which may be anybody's."""

    def then(
        self, rows: Sequence[int], turns: Sequence[Sequence[int]], finish: Sequence[str]
    ) -> list[list[int] | None]:
        """Return what follows each turn.

        Several threads may ask for different episodes: their tools run side by side, and all else one after another.
        """
        with self.lock:
            parsed = [self._read(row, ids, why) for row, ids, why in zip(rows, turns, finish, strict=True)]
        most = self.loop.settings.max_calls
        called = [row for row, turn in zip(rows, parsed, strict=True) if turn.calls]
        asked = [turn.calls[:most] for turn in parsed if turn.calls]
        ran = dict(zip(called, self._run(called, asked), strict=True))
        with self.lock:
            return [
                self._written(row, ids, self._called(row, turn, ran[row]) if turn.calls else self._answer(row, turn))
                for row, ids, turn in zip(rows, turns, parsed, strict=True)
            ]

    def alone(self, row: int, turn: Sequence[int], finish: str) -> list[int] | None:
        """Return what follows one turn."""
        return self.then([row], [turn], [finish])[0]

    def _run(self, rows: Sequence[int], calls: Sequence[Sequence[Call]]) -> list[list[Ran]]:
        """Run the calls of turns; those of the interaction's tools change its state."""
        episodes = [self.episodes[row] for row in rows]
        for episode in episodes:
            episode.kept[INTERACTION] = episode.state
        ids = [self._identity(row) for row in rows]
        ran = self.loop.toolbox.run(calls, [episode.kept for episode in episodes], ids, self.lock)
        for episode in episodes:
            episode.state = episode.kept[INTERACTION]
        return ran

    def _identity(self, row: int) -> str:
        """Return the identity of an episode's last turn in a run: its generator always draws the same bytes."""
        return self.generator(row=row, turn=len(self.episodes[row].rewards) - 1).bytes(16).hex()

    def _written(self, row: int, ids: Sequence[int], messages: Sequence[Message] | None) -> list[int] | None:
        """Return the ids of the messages after a turn; None if there are none."""
        if messages is None:
            return None
        self.episodes[row].messages += messages
        return self.loop.after(ids, messages)

    def _read(self, row: int, ids: Sequence[int], finish: str) -> Read:
        """Record a turn and parse it; the calls in the result are those to run."""
        episode, loop = self.episodes[row], self.loop
        text = loop.tokenizer.decode(list(ids))
        episode.anchors.append(anchor_of(loop.interaction, episode.state))
        episode.messages.append({"role": ASSISTANT, "content": text})
        episode.rewards.append(0.0)
        parsed = calls_in(loop.tool_format, text) if loop.schemas and finish != "length" else Parsed()
        episode.void.append(parsed.error is not None or finish == "length" or not text.strip())
        episode.errors += parsed.error is not None
        episode.invalid += parsed.error is not None
        asks = parsed.error is not None or bool(parsed.calls)
        if finish == "length":
            episode.end = TURN_CUT
        elif episode.invalid > loop.settings.max_invalid:
            episode.end = INVALID
        elif asks and len(episode.rewards) >= loop.max_turns:
            episode.end = MAX_TURNS
        turn = Turn(text=text, finish=finish, number=len(episode.rewards) - 1)
        return Read(turn=turn, error=parsed.error, calls=() if episode.end else parsed.calls)

    def _called(self, row: int, read: Read, ran: Sequence[Ran]) -> list[Message] | None:
        """Return the results of a turn's calls, or None if one failed through no fault of the policy."""
        episode = self.episodes[row]
        if lost := next((each.lost for each in ran if each.lost), ""):
            return self._failed(episode, lost)
        episode.calls += len(ran)
        episode.errors += sum(each.at_fault for each in ran)
        episode.rewards[-1] += sum(each.reward for each in ran)
        results = [self._result(call.name, each.text) for call, each in zip(read.calls, ran, strict=False)]
        if len(read.calls) > len(ran):
            said = f"error: only the first {len(ran)} of {len(read.calls)} calls were run"
            results.append(self._result("", said))
        return results

    def _answer(self, row: int, read: Read) -> list[Message] | None:
        """Return the response to a turn without calls, or None if the episode is over."""
        episode = self.episodes[row]
        if episode.end:
            return None
        if read.error is not None:
            return [self._result("", f"error: {read.error}")]
        if self.loop.interaction is None:
            episode.end = ANSWERED
            return None
        return self._stepped(row, self.loop.interaction, read.turn)

    def _failed(self, episode: Episode, why: str) -> None:
        episode.end = FAILED
        warnings.warn(f"an episode failed and is left out: {why}", DovetailWarning, stacklevel=2)

    def _result(self, name: str, text: str) -> Message:
        return {
            "role": self.loop.settings.result_role,
            "name": name,
            "content": self.loop.settings.result.format(name=name, result=text),
        }

    def _stepped(self, row: int, interaction: Interaction, turn: Turn) -> list[Message] | None:
        """Let the interaction respond."""
        episode, last = self.episodes[row], turn.number + 1 >= self.loop.max_turns
        try:
            step = interaction.step(episode.state, turn, self.generator(row=row, turn=turn.number))
        except (Exception, SystemExit) as error:
            return self._failed(episode, raised(interaction, error))
        see_that_right(interaction, step)
        episode.state, episode.rewards[-1] = step.state, float(step.reward)
        episode.metrics |= step.metrics
        if step.done or last or not step.messages:
            episode.end = MAX_TURNS if last and not step.done else DONE
            return None
        return list(step.messages)

    def result(self, full: Sequence[bool]) -> Episodes:
        """Return the records of the episodes."""
        for episode, is_full in zip(self.episodes, full, strict=True):
            episode.end = MAX_TOKENS if is_full else episode.end or FAILED
        failed = np.array([episode.end == FAILED for episode in self.episodes])
        if failed.all():
            raise RunError("every episode failed; the warnings above say why")
        numbers: dict[Hashable, int] = {}
        shape = (len(self.episodes), self.loop.max_turns)
        rewards, mask, anchors, void = np.zeros(shape), np.zeros(shape, bool), np.full(shape, -1), np.zeros(shape, bool)
        for row, episode in enumerate(self.episodes):
            count = len(episode.rewards)
            rewards[row, :count], mask[row, :count], void[row, :count] = episode.rewards, True, episode.void
            for turn, anchor in enumerate(episode.anchors):
                anchors[row, turn] = -1 if anchor is None else numbers.setdefault(anchor, len(numbers))
        names = sorted({name for episode in self.episodes for name in episode.metrics})
        return Episodes(
            turn_rewards=rewards,
            turn_mask=mask,
            anchor_ids=anchors,
            void_turns=void,
            tool_calls=np.array([episode.calls for episode in self.episodes]),
            tool_errors=np.array([episode.errors for episode in self.episodes]),
            ends=np.array([episode.end for episode in self.episodes]),
            failed=failed,
            conversations=tuple(tuple(episode.messages) for episode in self.episodes),
            states=tuple(episode.state for episode in self.episodes),
            metrics={n: np.array([e.metrics.get(n, np.nan) for e in self.episodes], float) for n in names},
        )

"""Plays episodes of several turns on any engine; each turn continues the ids of its episode so far."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import jax
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from dovetail.errors import CompletionsFailed, DovetailWarning, PluginError
from dovetail.protocols import Completions, Continuing, Episodes, RolloutEngine, Sampling, Turns
from dovetail.spans import span

TURN: Final = 0x40000000
RESET: Final = 0x50000000
AFTER: Final = 0x60000000
"""Folded into the key of a sample with the number of the turn: for sampling a turn's tokens, and for the environment at
the beginning of an episode and after a turn. So draws do not depend on the lengths of observations."""

Then = Callable[[list[int], list[list[int]], list[str]], list[list[int] | None]]
Alone = Callable[[int, list[int], str], list[int] | None]


@attrs.frozen
class Generators:
    """Random generators on the host for the environment, derived from the keys of the samples."""

    words: Int[np.ndarray, "prompt sample word"]

    @classmethod
    def of(cls, keys: Key[Array, "prompt sample"]) -> Generators:
        """Return the generators for these keys."""
        return cls(np.asarray(jax.random.key_data(keys)).astype(np.uint32))

    def __call__(self, *, prompt: int | None = None, row: int | None = None, turn: int = 0) -> np.random.Generator:
        """Return a new generator, either for a prompt (the same for all of its samples) or for a row and a turn."""
        if prompt is not None:
            return np.random.default_rng([*self.words[prompt, 0], RESET])
        samples = self.words.shape[1]
        return np.random.default_rng([*self.words[row // samples, row % samples], AFTER | turn])  # pyright: ignore[reportOptionalOperand]


@attrs.frozen(kw_only=True)
class Tape:
    """The ids of each episode so far; they are the only truth, and nothing is rendered again."""

    tokens: Int[np.ndarray, "seq token"]
    logps: np.ndarray
    mask: Bool[np.ndarray, "seq token"]
    observed: Bool[np.ndarray, "seq token"]
    turns: Int[np.ndarray, "seq token"]
    versions: Int[np.ndarray, "seq token"]
    finish: np.ndarray
    filled: Int[np.ndarray, "seq"]
    support: Int[np.ndarray, "seq token candidate"] | None = None

    @classmethod
    def empty(cls, rows: int, limit: int, pad_id: int, support: np.ndarray | None = None) -> Tape:
        """Return a tape with room for `limit` tokens in each row, and as many candidates for each as `support` has."""
        shape = (rows, limit)
        return cls(
            tokens=np.full(shape, pad_id, np.int32),
            logps=np.zeros(shape, np.float32),
            mask=np.zeros(shape, bool),
            observed=np.zeros(shape, bool),
            turns=np.zeros(shape, np.int32),
            versions=np.zeros(shape, np.int32),
            finish=np.full(rows, "length", "<U6"),
            filled=np.zeros(rows, np.int32),
            support=None if support is None else np.full((*shape, support.shape[2]), -1, np.int32),
        )

    def room(self, row: int) -> int:
        """Return the number of tokens that still fit into a row."""
        return self.tokens.shape[1] - int(self.filled[row])

    def is_full(self, row: int) -> bool:
        """Tell whether a row's last turn was cut because nothing more fits into it."""
        return self.finish[row] == "length" and self.room(row) == 0

    def write(self, row: int, drawn: Completions, index: int, turn: int) -> list[int]:
        """Append a turn, cut to the remaining room, and return its ids."""
        count = min(int(drawn.mask[index].sum()), self.room(row))
        place = slice(self.filled[row], self.filled[row] + count)
        self.tokens[row, place] = drawn.tokens[index, :count]
        self.logps[row, place] = drawn.logps[index, :count]
        self.mask[row, place] = True
        self.turns[row, place] = turn
        self.versions[row, place] = drawn.versions[index, :count]
        self.versions[row, place.stop :] = drawn.versions[index, max(count, 1) - 1]
        if self.support is not None and drawn.support is not None:
            self.support[row, place] = drawn.support[index, :count]
        self.finish[row] = drawn.finish[index] if count == drawn.mask[index].sum() else "length"
        self.filled[row] += count
        return drawn.tokens[index, :count].tolist()

    def observe(self, row: int, ids: Sequence[int], turn: int) -> None:
        """Append the observation after a turn."""
        place = slice(self.filled[row], self.filled[row] + len(ids))
        self.tokens[row, place] = ids
        self.observed[row, place] = True
        self.turns[row, place] = turn
        self.filled[row] += len(ids)

    def completions(self, failed: Bool[np.ndarray, "seq"]) -> Completions:
        """Return the episodes as completions; the mask of failed episodes is empty."""
        finish = np.where(failed, "error", self.finish)
        mask = self.mask & (finish != "error")[:, None]
        return Completions(
            tokens=self.tokens,
            mask=mask,
            logps=np.where(mask, self.logps, np.float32(0)),
            finish=finish,
            versions=self.versions,
            observed=self.observed,
            turns=self.turns,
            support=self.support,
        )


@attrs.frozen(kw_only=True)
class ByRounds:
    """Turns on any engine: each round processes the completions so far again, as prompts.

    An engine with a method `turns` keeps its cache instead, and must give the same results.
    """

    engine: RolloutEngine
    prompt_tokens: Int[np.ndarray, "prompt position"]
    prompt_mask: Bool[np.ndarray, "prompt position"]
    keys: Key[Array, "prompt sample"]
    sampling: Sampling
    max_turn_tokens: int
    options: Mapping[str, Any]
    said: list[list[int]] = attrs.field(factory=list)
    """The ids of each completion so far, with those of its prompt."""

    def first(self) -> Completions:
        """Sample the first turns."""
        for tokens, mask in zip(self.prompt_tokens, self.prompt_mask, strict=True):
            self.said.extend(tokens[mask].tolist() for _ in range(self.keys.shape[1]))
        return self._sample(range(self.keys.size), self.prompt_tokens, self.prompt_mask, self.keys)

    def next(self, rows: Sequence[int], observed: Sequence[Sequence[int]], keys: Key[Array, "seq"]) -> Completions:
        """Sample the next turns, with rows padded to 1, 1/4, 1/16, ... of all, because each number is compiled."""
        size, width = self.keys.size, self.prompt_tokens.shape[1] + self.sampling.max_tokens
        while size % 4 == 0 and size // 4 >= len(rows):
            size //= 4
        tokens, mask = np.zeros((size, width), np.int32), np.zeros((size, width), bool)
        for index, (row, ids) in enumerate(zip(rows, observed, strict=True)):
            self.said[row] += ids
            place = slice(width - len(self.said[row]), width)
            tokens[index, place], mask[index, place] = self.said[row], True
        where = np.arange(size) % len(rows)
        return self._sample(rows, tokens[where], mask[where], take_keys(keys, where)[:, None])

    def _sample(self, rows: Sequence[int], tokens: Any, mask: Any, keys: Any) -> Completions:
        by_turn = attrs.evolve(self.sampling, max_tokens=self.max_turn_tokens)
        drawn = self.engine.generate(tokens, mask, keys, by_turn, **self.options).rows(slice(len(rows)))
        for row, ids, kept in zip(rows, drawn.tokens, drawn.mask, strict=True):
            self.said[row] += ids[kept].tolist()
        return drawn


@attrs.frozen(kw_only=True)
class Rounds:
    """Plays episodes on an engine: all of them turn by turn or, if engine and agent loop can, each by itself."""

    engine: RolloutEngine
    pad_id: int
    max_turn_tokens: int | None
    options: Mapping[str, Any] = attrs.field(factory=dict)

    def __call__(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
        then: Then,
        alone: Alone | None = None,
    ) -> tuple[Tape, Bool[np.ndarray, "seq"]]:
        """Sample turns until `then` has ended every episode or the episode is full.

        With `alone`, which answers one turn as `then` would, no episode waits for another on an engine that can `play`.

        Returns:
            The tape, and a mask of the episodes that ended because they were full.
        """
        turns = self._turns(prompt_tokens, prompt_mask, keys, sampling)
        if alone is not None and (played := getattr(turns, "play", None)) is not None:
            return self._apart(played, keys, sampling, alone)
        drawn = turns.first()
        tape = Tape.empty(keys.size, sampling.max_tokens, self.pad_id, drawn.support)
        full = np.zeros(keys.size, bool)
        active, turn = list(range(keys.size)), 0
        while True:
            written = [tape.write(row, drawn, index, turn) for index, row in enumerate(active)]
            following = self._answered(tape, full, active, written, turn, then)
            if not following:
                return tape, full
            active, turn = list(following), turn + 1
            try:
                drawn = turns.next(active, list(following.values()), take_keys(_of_turn(keys, turn), np.array(active)))
            except CompletionsFailed as error:
                if len(active) == keys.size:
                    raise
                warnings.warn(f"episodes {active} failed and are left out: {error}", DovetailWarning, stacklevel=2)
                tape.finish[active] = "error"
                return tape, full

    def _apart(self, play: Any, keys: Any, sampling: Sampling, alone: Alone) -> tuple[Tape, Bool[np.ndarray, "seq"]]:
        """Have the engine play, and write what each episode says and reads, which no other thread does meanwhile."""
        tape, full = Tape.empty(keys.size, sampling.max_tokens, self.pad_id), np.zeros(keys.size, bool)
        turns, keys_of = np.zeros(keys.size, int), functools.cache(lambda turn: _of_turn(keys, turn))

        def then(row: int, drawn: Completions) -> tuple[list[int], Key[Array, "1"]] | None:
            turn = int(turns[row])
            said = tape.write(row, drawn, 0, turn)
            if tape.finish[row] == "error":
                return None
            full[row] |= tape.is_full(row)
            ids = _read(tape, full, row, alone(row, said, str(tape.finish[row])), turn)
            turns[row] += 1
            return None if ids is None else (ids, take_keys(keys_of(turn + 1), np.array([row])))

        play(then)
        return tape, full

    def _turns(self, prompt_tokens: Any, prompt_mask: Any, keys: Any, sampling: Sampling) -> Turns:
        """Return the engine's own turns, or calls of `generate` that amount to them."""
        limit = min(self.max_turn_tokens or sampling.max_tokens, sampling.max_tokens)
        opened = None
        if isinstance(self.engine, Continuing):
            opened = self.engine.turns(prompt_tokens, prompt_mask, keys, sampling, limit, **self.options)
        return opened or ByRounds(
            engine=self.engine,
            prompt_tokens=prompt_tokens,
            prompt_mask=prompt_mask,
            keys=keys,
            sampling=sampling,
            max_turn_tokens=limit,
            options=self.options,
        )

    def _answered(
        self, tape: Tape, full: np.ndarray, active: list[int], turns: list[list[int]], turn: int, then: Then
    ) -> dict[int, list[int]]:
        """Call `then` and append its observations; return those of the episodes that continue."""
        asked = [index for index, row in enumerate(active) if tape.finish[row] != "error"]
        rows = [active[index] for index in asked]
        if not rows:
            return {}
        full[rows] |= [tape.is_full(row) for row in rows]
        with span("tools", program="tools"):
            answers = then(rows, [turns[index] for index in asked], [str(tape.finish[row]) for row in rows])
        if len(answers) != len(rows):
            raise PluginError(f"the agent loop answered {len(answers)} of {len(rows)} turns; one answer for each")
        read = {row: _read(tape, full, row, ids, turn) for row, ids in zip(rows, answers, strict=True)}
        return {row: ids for row, ids in read.items() if ids is not None}


def _read(tape: Tape, full: np.ndarray, row: int, ids: Sequence[int] | None, turn: int) -> list[int] | None:
    """Append what follows a turn to its episode, and return it; None if no other turn does."""
    if ids is not None and len(ids) >= tape.room(row):  # at least one token of the policy must fit after it
        tape.finish[row], full[row], ids = "length", True, None
    if ids is None:
        return None
    tape.observe(row, ids, turn)
    return list(ids)


@jax.jit
def _of_turn(keys: Key[Array, "prompt sample"], turn: int) -> Key[Array, "seq"]:
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys.reshape(-1), TURN | turn)


def take_keys(keys: Key[Array, "seq"], rows: Int[np.ndarray, "chosen"]) -> Key[Array, "chosen"]:
    """Return some keys, without compiling anything for their number."""
    chosen = jax.device_put(np.asarray(jax.random.key_data(keys))[rows])
    return jax.random.wrap_key_data(chosen, impl=jax.random.key_impl(keys))


def empty_episodes(rows: int, turns: int) -> Episodes:
    """Return empty episodes."""
    zeros = np.zeros((rows, turns))
    return Episodes(
        turn_rewards=zeros,
        turn_mask=zeros > 0,
        anchor_ids=zeros.astype(int) - 1,
        void_turns=zeros > 0,
        tool_calls=np.zeros(rows, int),
        tool_errors=np.zeros(rows, int),
        ends=np.full(rows, ""),
        failed=np.zeros(rows, bool),
        conversations=((),) * rows,
        states=(None,) * rows,
    )


def fields_of(completions: Completions, episodes: Episodes) -> dict[str, np.ndarray]:
    """Return the additional fields of episodes of several turns."""
    return {
        "observed": completions.observed,
        "turns": completions.turns,
        "turn_rewards": episodes.turn_rewards.astype(np.float32),
        "turn_mask": episodes.turn_mask,
        "anchor_ids": episodes.anchor_ids.astype(np.int32),
        "void_turns": episodes.void_turns,
        "tool_calls": episodes.tool_calls.astype(np.int32),
        "tool_errors": episodes.tool_errors.astype(np.int32),
    }

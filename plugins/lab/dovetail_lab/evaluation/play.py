"""One completion or episode, turn by turn as the model reads and writes it; a person may take the model's place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import numpy as np

from dovetail.config import Config
from dovetail.errors import ConfigError, RunError
from dovetail.host.completer import Completer
from dovetail.host.sampling import Sampled, Sampler
from dovetail.protocols import (
    ASSISTANT,
    Completions,
    Example,
    OpenLoop,
    Recordable,
    RolloutEngine,
    Sampling,
    Task,
    Tokenizer,
    Weights,
)
from dovetail.run.files import read_lines
from dovetail.step import keys
from dovetail.training.columns import check_drawn, make_scorer
from dovetail.training.texts import open_loop, prompts

GOES_ON: Final = "\\"
"""At the end of a line: the turn goes on in the next one."""
_LOST: Final = "\N{REPLACEMENT CHARACTER}"
_UNCLEAR: Final = (
    "the model wrote bytes that are not text, and the record has U+FFFD in their place, so the turns cannot be repeated"
    " exactly"
)


@attrs.frozen(kw_only=True)
class Person:
    """A rollout engine that asks somebody for each turn.

    Args:
        tokenizer: what is written is encoded, cut where a turn has to end, and closed with an EOS.
        ask: returns a line.
    """

    tokenizer: Tokenizer
    ask: Callable[[], str]

    def generate(self, prompt_tokens: Any, prompt_mask: Any, keys: Any, sampling: Sampling) -> Completions:
        """Ask for a completion for each key."""
        rows = [self._turn(sampling.max_tokens) for _ in range(keys.size)]
        width = max(map(len, rows))
        tokens = np.full((len(rows), width), self.tokenizer.pad_id, np.int32)
        mask = np.zeros((len(rows), width), bool)
        for row, ids in enumerate(rows):
            tokens[row, : len(ids)], mask[row, : len(ids)] = ids, True
        ended = [ids[-1] in self.tokenizer.eos_ids for ids in rows]
        return Completions(
            tokens=tokens,
            mask=mask,
            logps=np.zeros((len(rows), width), np.float32),
            finish=np.where(ended, "eos", "length"),
            versions=np.zeros(len(rows), np.int32),
        )

    def _turn(self, limit: int) -> list[int]:
        lines = [self._line()]
        while lines[-1].endswith(GOES_ON):
            lines[-1] = lines[-1].removesuffix(GOES_ON)
            lines.append(self._line())
        return [*self.tokenizer.encode("\n".join(lines)), self.tokenizer.eos_ids[0]][:limit]

    def _line(self) -> str:
        try:
            return self.ask().encode(errors="surrogateescape").decode(errors="replace")  # a pipe may bring any bytes
        except EOFError:
            raise RunError("the input ended before the episode did") from None

    def sync(self, weights: Weights, version: int) -> None:
        """A person has no weights."""

    def close(self) -> None:
        """Nothing is held."""


class Recited(Person):
    """A rollout engine that repeats recorded turns; `ask` returns a whole one."""

    def _turn(self, limit: int) -> list[int]:
        return [*self.tokenizer.encode(self.ask()), self.tokenizer.eos_ids[0]][:limit]


def recorded(run: Path, index: int) -> dict[str, Any]:
    """Return the newest episode of a prompt in a run's `samples.jsonl`.

    Raises:
        RunError: if there is none; the message says of which prompts there are.
    """
    lines = [line for line in read_lines(run / "samples.jsonl", None) if "messages" in line]
    found = [line for line in lines if line["index"] == index]
    if not found:
        there = ", ".join(map(str, sorted({line["index"] for line in lines}))) or "none"
        raise RunError(f"--index {index}: '{run / 'samples.jsonl'}' has no episode of this prompt; it has {there}")
    return found[-1]


def replayed(
    config: Config, tokenizer: Tokenizer, run: Path, index: int, show: Callable[[str, str], None]
) -> tuple[Sampled, list[str]]:
    """Play a recorded episode again without a model or a tool; also return what came out differently.

    The turns come from `samples.jsonl`, the results of tools from the run's record of them. The environment is asked
    again.

    Raises:
        RunError: if the episode or a result is not recorded.
    """
    line, loop = recorded(run, index), open_loop(config, tokenizer)
    if isinstance(loop, Recordable):
        loop = loop.recording(run, only=True)
    written = [message["content"] for message in line["messages"] if message["role"] == ASSISTANT]
    turns, unclear = iter(written), any(_LOST in turn for turn in written)

    def told() -> str:
        try:
            return next(turns)
        except StopIteration:
            raise RunError(
                f"the episode in '{run / 'samples.jsonl'}' ended here, and it goes on: "
                + (_UNCLEAR if unclear else "the run or its environment is not the same any more")
            ) from None

    engine = Shown(inner=Recited(tokenizer=tokenizer, ask=told), tokenizer=tokenizer, show=show, writes=True)
    example = example_of(config, tokenizer, loop, "eval", index)
    found = played(config, engine, tokenizer, loop, example, index, line["sample"])
    episodes = found.completed.episodes
    assert episodes is not None, "only episodes of a loop have messages"
    came = {
        "messages": [dict(message) for message in episodes.conversations[0]],
        "turn_rewards": episodes.turn_rewards[0][episodes.turn_mask[0]].tolist(),
        "ended": str(episodes.ends[0]),
    }
    differs = [f"{name}: {came[name]}, and in the record {line[name]}" for name in came if came[name] != line[name]]
    return found, [*differs, _UNCLEAR] if differs and unclear else differs


@attrs.define(kw_only=True)
class Shown:
    """A rollout engine for a single row that shows what it reads and writes.

    Args:
        inner: what draws.
        tokenizer: of the ids.
        show: told who speaks, and what.
        writes: whether what is written is shown; a person has seen it.
    """

    inner: RolloutEngine
    tokenizer: Tokenizer
    show: Callable[[str, str], None]
    writes: bool
    seen: int = 0

    def generate(
        self, prompt_tokens: Any, prompt_mask: Any, keys: Any, sampling: Sampling, **options: Any
    ) -> Completions:
        """Show what is new in the prompt, and then what is drawn."""
        read = prompt_tokens[0][prompt_mask[0]].tolist()
        self.show("read", self.tokenizer.decode(read[self.seen :]))
        drawn = self.inner.generate(prompt_tokens, prompt_mask, keys, sampling, **options)
        written = drawn.tokens[0][drawn.mask[0]].tolist()
        if self.writes:
            self.show("written", self.tokenizer.decode(written))
        self.seen = len(read) + len(written)
        return drawn

    def sync(self, weights: Weights, version: int) -> None:
        """Pass weights on."""
        self.inner.sync(weights, version)

    def close(self) -> None:
        """Close what draws."""
        self.inner.close()


def example_of(
    config: Config, tokenizer: Tokenizer, loop: OpenLoop | None, split: Literal["train", "eval"], index: int
) -> Example:
    """Return one example of the task.

    Raises:
        ConfigError: if there are fewer.
        PlanError: if a reward or the interaction reads a column that the task does not have.
    """
    chosen = config.choice("eval.task" if split == "eval" else "train.task")
    task: Task = chosen.bind()
    make_scorer(config).check_columns(task.columns, chosen.component.name)
    check_drawn(config, task)
    examples, _ = prompts(config, task, split, tokenizer, loop)
    if not 0 <= index < len(examples):
        raise ConfigError(f"--index {index}: the {split} split has {len(examples)} prompts, from 0 on")
    return examples[index]


def played(
    config: Config,
    engine: RolloutEngine,
    tokenizer: Tokenizer,
    loop: OpenLoop | None,
    example: Example,
    index: int,
    sample: int = 0,
) -> Sampled:
    """Complete one example with an engine, and score it as training would."""
    limit = config.train.max_prompt_tokens
    complete = Completer(engine=engine, tokenizer=tokenizer, max_prompt_tokens=limit, loop=loop)
    sampler = Sampler(complete=complete, scorer=make_scorer(config))
    of_prompts = keys.per_sample(keys.stream(config.run.seed, keys.EVALUATION), index + 1, sample + 1)
    return sampler([example], of_prompts[index:, sample:], config.sampling)


def outcome(sampled: Sampled) -> str:
    """Say how it ended and what it is worth."""
    episodes, scores = sampled.completed.episodes, sampled.scores
    if episodes is None:
        lines = [f"ended    {sampled.completions.finish[0]}"]
    else:
        rewards = episodes.turn_rewards[0][episodes.turn_mask[0]]
        count = f"{len(rewards)} turn{'s' * (len(rewards) != 1)}"
        lines = [
            f"ended    {episodes.ends[0]}, after {count}",
            f"rewards  {', '.join(f'{reward:g}' for reward in rewards)}   of each turn",
        ]
    lines += [f"reward   {value:g}   {name}" for name, value in zip(scores.names, scores.table[0], strict=True)]
    return "\n".join([*lines, f"score    {scores.total[0]:g}"])

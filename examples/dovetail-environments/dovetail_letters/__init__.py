"""A small environment as users of verifiers write them: guess a letter, and be told which way to go."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["Letters", "LettersEnv"]


class LetterData(vf.TaskData):
    """The letter to be guessed."""

    letter: str


class LetterTask(vf.Task[LetterData, vf.State, vf.TaskConfig]):
    """Guess a letter; right is 1, and half of that for saying a single letter."""

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        """Score the last reply."""
        return float(trace.last_reply == self.data.letter)

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        """Score its length."""
        return float(len(trace.last_reply) == 1)

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        """Count the turns."""
        return float(len(trace.assistant_messages))


class LettersConfig(vf.TasksetConfig):
    """Settings of the taskset."""

    letters: str = "abcdefgh"


class Letters(vf.Taskset[LetterTask, LettersConfig]):
    """Letters in random order, without end."""

    INFINITE = True

    def load(self) -> Iterator[LetterTask]:
        """Draw letters."""
        drawn = random.Random(0)
        for number in itertools.count(1):
            letter = drawn.choice(self.config.letters)
            prompt = f"Game {number}: a letter from {self.config.letters[0]} to {self.config.letters[-1]}."
            yield LetterTask(LetterData(prompt=prompt, system_prompt="Guess.", letter=letter), self.config.task)


class LettersEnvConfig(vf.EnvConfig):
    """One player."""

    player: vf.AgentConfig = vf.AgentConfig()


class LettersEnv(vf.Env[LettersEnvConfig]):
    """Tells the player which way to go, four times."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Play."""
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            for _ in range(3):
                if segment.last_reply == task.data.letter:
                    break
                hint = "later" if segment.last_reply < task.data.letter else "earlier"
                segment = await interaction.turn(hint)

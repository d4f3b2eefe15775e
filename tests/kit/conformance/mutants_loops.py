"""Broken agent loops, and one that is right and not at all like ours."""

from __future__ import annotations

import attrs
import numpy as np
from tests.kit.conformance.mutants import caught_by, right

import dovetail
from dovetail.errors import ConfigError
from dovetail.protocols import Episodes
from dovetail_agent.agent_loop._played import Played
from dovetail_agent.agent_loop.tool_agent import OpenToolAgent, ToolAgent


class With:
    """Makes `ToolAgent` begin episodes of another class, or with other generators."""

    played: type[Played] = Played

    @property
    def opened(self):
        return type("Opened", (OpenToolAgent,), {"begin": self.begin(OpenToolAgent.begin)})

    def begin(self, begin):
        def begun(loop, examples, samples, generator):
            found = begin(loop, examples, samples, self.generator(generator))
            return self.played(**{name: getattr(found, name) for name in attrs.fields_dict(Played)})

        return begun

    def generator(self, generator):
        return generator


@caught_by("agent_loop", "opens_as_declared")
@attrs.frozen(kw_only=True)
class OpensNothing(ToolAgent):
    def open(self, *chosen):
        """Declare turns, and have none."""


class Endless(Played):
    def then(self, rows, turns, finish):
        return [ids or [65] for ids in super().then(rows, turns, finish)]


@caught_by("agent_loop", "episodes_end")
@attrs.frozen(kw_only=True)
class NeverEnds(With, ToolAgent):
    played = Endless


class WithoutTheLast(Played):
    def result(self, full):
        found = super().result(full)
        last = np.cumsum(found.turn_mask[:, ::-1], axis=1)[:, ::-1] == 1
        return attrs.evolve(
            found, turn_mask=found.turn_mask & ~last, turn_rewards=np.where(last, 0, found.turn_rewards)
        )


@caught_by("agent_loop", "episodes_end")
@attrs.frozen(kw_only=True)
class ForgetsTheLastTurn(With, ToolAgent):
    played = WithoutTheLast


class AllTogether(Played):
    def result(self, full):
        found = super().result(full)
        return attrs.evolve(found, failed=found.failed | found.failed.any())


@caught_by("agent_loop", "episodes_are_apart")
@attrs.frozen(kw_only=True)
class LetsOneFailForAll(With, ToolAgent):
    played = AllTogether


@caught_by("agent_loop", "episodes_are_apart")
@attrs.frozen(kw_only=True)
class DrawsInOrder(With, ToolAgent):
    def generator(self, generator):
        rng = np.random.default_rng(0)
        return lambda **_: rng


@caught_by("agent_loop", "same_turns_same_episodes")
@attrs.frozen(kw_only=True)
class DrawsAnew(With, ToolAgent):
    def generator(self, generator):
        return lambda **_: np.random.default_rng()


class Late(Played):
    def result(self, full):
        found = super().result(full)
        late = np.roll(found.turn_rewards, 1, axis=1)
        return attrs.evolve(found, turn_rewards=np.where(found.turn_mask, late, 0))


@caught_by("agent_loop", "rewards_of_their_turns")
@attrs.frozen(kw_only=True)
class RewardsTheNextTurn(With, ToolAgent):
    played = Late


class Sorted(Played):
    def then(self, rows, turns, finish):
        turn = dict(zip(rows, zip(turns, finish, strict=True), strict=True))
        return super().then(sorted(rows), *zip(*(turn[row] for row in sorted(rows)), strict=True))


@caught_by("agent_loop", "rows_in_any_order")
@attrs.frozen(kw_only=True)
class SortsTheRows(With, ToolAgent):
    played = Sorted


class Backwards(Played):
    def _called(self, row, read, ran):
        results = super()._called(row, read, ran)
        return results and results[::-1]


@caught_by("agent_loop", "results_in_order")
@attrs.frozen(kw_only=True)
class LastCallFirst(With, ToolAgent):
    played = Backwards


class NoneFails(Played):
    def result(self, full):
        return attrs.evolve(super().result(full), failed=np.zeros(len(full), bool))


@caught_by("agent_loop", "failures_are_told")
@attrs.frozen(kw_only=True)
class TellsOfNoFailure(With, ToolAgent):
    played = NoneFails


class LongOnesFail(Played):
    def result(self, full):
        found = super().result(full)
        return attrs.evolve(found, failed=found.failed | np.array(full))


@caught_by("agent_loop", "failures_are_told")
@attrs.frozen(kw_only=True)
class LimitIsAFailure(With, ToolAgent):
    played = LongOnesFail


class Talks(With, ToolAgent):
    """Refuses tools: the policy talks to an environment, and to nobody else."""

    def open(self, tokenizer, interaction, tools, tool_format):
        if tools or interaction is None:
            raise ConfigError("it has no use for tools, and needs train.interaction")
        return super().open(tokenizer, interaction, tools, tool_format)


@right("agent_loop")
@dovetail.declares(turns=True)
@attrs.frozen(kw_only=True)
class TalksOnly(Talks):
    """The policy and an environment take turns, as in `tool_agent`, whose settings it has."""


@caught_by("agent_loop", "rewards_of_their_turns")
@attrs.frozen(kw_only=True)
class TalksAndRewardsTheNextTurn(Talks):
    played = Late


class Shares(Talks):
    """All samples of a prompt are one episode."""

    def begin(self, begin):
        def begun(loop, examples, samples, generator):
            found = begin(loop, examples, samples, generator)
            shared = [found.episodes[row - row % samples] for row in range(len(found.episodes))]
            return attrs.evolve(found, episodes=tuple(shared))

        return begun


@caught_by("agent_loop", "episodes_end")
@attrs.frozen(kw_only=True)
class OneEpisodeForAll(Shares):
    """Talks only."""


@right("agent_loop")
@dovetail.declares(turns=True)
@attrs.frozen(kw_only=True)
class AsksWhetherItIsSure:
    """A question after the first turn, and a second turn to answer it; without tools or an environment."""

    question: str = "Sure?"

    def open(self, tokenizer, interaction, tools, tool_format):
        return Asking(self.question, tokenizer)


@attrs.frozen
class Asking:
    question: str
    tokenizer: object
    max_turns: int = 2
    max_turn_tokens: None = None

    def prompt(self, example):
        return example["prompt"]

    def begin(self, examples, samples, generator):
        return Asked(self, tuple(map(self.prompt, examples)), [[] for _ in range(len(examples) * samples)])


@attrs.frozen
class Asked:
    loop: Asking
    prompts: tuple[str, ...]
    said: list[list[dict[str, str]]]

    def then(self, rows, turns, finish):
        answers = []
        for row, ids in zip(rows, turns, strict=True):
            self.said[row].append({"role": "assistant", "content": self.loop.tokenizer.decode(ids)})
            first = len(self.said[row]) == 1
            answers.append(self.loop.tokenizer.encode(self.loop.question) if first else None)
        return answers

    def result(self, full):
        shape = (len(self.said), 2)
        return Episodes(
            turn_rewards=np.zeros(shape),
            turn_mask=np.array([[len(said) > turn for turn in range(2)] for said in self.said]),
            anchor_ids=np.full(shape, -1),
            void_turns=np.zeros(shape, bool),
            tool_calls=np.zeros(shape[0], int),
            tool_errors=np.zeros(shape[0], int),
            ends=np.where(full, "max_tokens", "answered"),
            failed=np.zeros(shape[0], bool),
            conversations=tuple(map(tuple, self.said)),
            states=(None,) * shape[0],
        )

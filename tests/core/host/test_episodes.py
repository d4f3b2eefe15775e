"""Episodes on any engine contain exactly the ids that were sampled and observed, whatever else is in the batch."""

import attrs
import jax
import numpy as np
import pytest

from dovetail.errors import CompletionsFailed, DataError, DovetailWarning, PluginError
from dovetail.host.completer import Completer
from dovetail.host.episodes import Generators, Rounds, empty_episodes
from dovetail.protocols import Completions, Sampling

EOS, PAD = 1, 0


@attrs.define
class Echo:
    """Samples `count` tokens, the prompt's number of unmasked tokens plus a number from the key, and then an EOS."""

    count: int = 2
    asked: list = attrs.field(factory=list)

    def generate(self, prompt_tokens, prompt_mask, keys, sampling):
        self.asked.append((prompt_tokens, prompt_mask, sampling.max_tokens))
        rows = keys.size
        samples = keys.shape[1]
        tokens = np.zeros((rows, sampling.max_tokens), np.int32)
        mask = np.zeros_like(tokens, bool)
        drawn = np.asarray(jax.vmap(lambda key: jax.random.randint(key, (), 10, 90))(keys.reshape(-1)))
        for row in range(rows):
            ids = [int(prompt_mask[row // samples].sum()), int(drawn[row]), *[7] * (self.count - 2)]
            ids = [*ids, EOS][: sampling.max_tokens]
            tokens[row, : len(ids)], mask[row, : len(ids)] = ids, True
        return Completions(
            tokens=tokens,
            mask=mask,
            logps=np.where(mask, -0.5, 0.0).astype(np.float32),
            finish=np.full(rows, "eos"),
            versions=np.full(rows, 3, np.int32),
        )


def play(then, *, prompts=2, samples=2, max_tokens=16, engine=None, turn_tokens=4):
    tokens = np.array([[0, 5, 6], [0, 0, 4]], np.int32)[:prompts]
    keys = jax.random.split(jax.random.key(0), (prompts, samples))
    rounds = Rounds(engine=engine or Echo(), pad_id=PAD, max_turn_tokens=turn_tokens)
    tape, full = rounds(tokens, tokens > 0, keys, Sampling(max_tokens=max_tokens), then)
    return tape.completions(np.zeros(keys.size, bool)), full


def until(turns):
    """Return an agent that answers 50, 51 after each turn except the last; row r has `turns[r]` turns."""
    seen = {}

    def then(rows, ended, finish):
        for row in rows:
            seen[row] = seen.get(row, 0) + 1
        return [None if seen[row] >= turns[row] else [50, 51] for row in rows]

    return then


def test_one_turn_is_what_the_engine_draws():
    drawn, full = play(until([1, 1, 1, 1]))
    assert drawn.tokens[:, 2].tolist() == [EOS] * 4
    assert drawn.mask.sum(axis=1).tolist() == [3] * 4
    assert not drawn.observed.any()
    assert not full.any()
    assert set(drawn.versions.flat) == {3}


def test_a_turn_reads_all_that_was_before_and_observations_are_in_no_mask():
    engine = Echo()
    drawn, _ = play(until([2, 1, 3, 1]), engine=engine)
    assert drawn.mask[0].tolist() == [True] * 3 + [False] * 2 + [True] * 3 + [False] * 8
    assert drawn.observed[0].tolist() == [False] * 3 + [True] * 2 + [False] * 11
    assert drawn.turns[0, :8].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert drawn.tokens[0, 3:5].tolist() == [50, 51]
    # prompt 0 has 2 tokens; its second turn sees 3 drawn and 2 said as well
    assert drawn.tokens[0, 5] == 7
    assert drawn.tokens[2, [5, 10]].tolist() == [6, 11]
    assert (drawn.logps[~drawn.mask] == 0).all()
    tokens, mask, _ = engine.asked[1]
    assert tokens[0][mask[0]].tolist() == [5, 6, *drawn.tokens[0, :5].tolist()]


def test_what_others_do_changes_no_episode():
    alone, _ = play(until([3, 1, 1, 1]))
    together, _ = play(until([3, 2, 3, 2]))
    np.testing.assert_array_equal(alone.tokens[0], together.tokens[0])


def test_draws_of_a_turn_do_not_depend_on_how_long_an_observation_was():
    def then_of(said):
        def then(rows, ended, finish):
            return [said if len(turn) and turn[0] < 4 else None for turn in ended]

        return then

    short, _ = play(then_of([50]))
    long, _ = play(then_of([50, 51, 52, 53]))
    assert short.tokens[0, 5] == long.tokens[0, 8]


def test_rows_are_filled_up_to_a_quarter_so_that_few_shapes_are_compiled():
    engine = Echo()
    play(until([3, 2, 2, 1]), engine=engine)
    assert [len(tokens) for tokens, _, _ in engine.asked] == [2, 4, 1]


def test_an_observation_that_leaves_no_room_ends_the_episode_as_truncated():
    drawn, full = play(until([9, 9, 9, 9]), max_tokens=9)
    assert drawn.finish.tolist() == ["length"] * 4
    assert full.all()
    assert drawn.mask.sum(axis=1).tolist() == [6] * 4
    assert drawn.truncated.all()


def test_a_turn_is_cut_where_the_room_ends():
    drawn, full = play(until([9, 9, 9, 9]), max_tokens=7)
    assert drawn.mask.sum(axis=1).tolist() == [5] * 4
    assert drawn.finish.tolist() == ["length"] * 4
    assert full.all()


def test_an_episode_that_ends_by_itself_on_its_last_place_is_not_truncated():
    drawn, full = play(until([1, 1, 1, 1]), max_tokens=3)
    assert drawn.mask.all()
    assert not full.any()
    assert not drawn.truncated.any()


def test_an_answer_for_each_turn():
    with pytest.raises(PluginError, match="the agent loop answered 1 of 4 turns"):
        play(lambda rows, turns, finish: [None])


def test_an_episode_that_failed_has_no_token_of_the_policy():
    tokens = np.array([[5]], np.int32)
    keys = jax.random.split(jax.random.key(0), (1, 2))
    rounds = Rounds(engine=Echo(), pad_id=PAD, max_turn_tokens=None)
    tape, _ = rounds(tokens, tokens > 0, keys, Sampling(max_tokens=8), until([1, 1]))
    drawn = tape.completions(np.array([True, False]))
    assert drawn.finish.tolist() == ["error", "eos"]
    assert drawn.mask.any(axis=1).tolist() == [False, True]


@attrs.define
class FailsLater(Echo):
    """An engine in which every turn after the first fails."""

    def generate(self, *asked):
        later = bool(self.asked)
        drawn = super().generate(*asked)
        return attrs.evolve(drawn, mask=drawn.mask & False, finish=np.full(4, "error")) if later else drawn


def test_a_round_in_which_every_episode_fails_is_the_last():
    drawn, full = play(until([1, 2, 2, 3]), engine=FailsLater())
    assert drawn.finish.tolist() == ["eos", "error", "error", "error"]
    assert not full.any()


@attrs.define
class Refuses(Echo):
    """An engine that can sample nothing in a call with few rows."""

    def generate(self, *asked):
        drawn = super().generate(*asked)
        if len(drawn.tokens) < self.count:
            raise CompletionsFailed("every completion failed: the prompt is too long")
        return drawn


def test_the_last_episode_may_fail_by_itself():
    with pytest.warns(DovetailWarning, match=r"episodes \[2\] failed and are left out: .* too long"):
        drawn, full = play(until([1, 1, 2, 1]), engine=Refuses())
    assert drawn.finish.tolist() == ["eos", "eos", "error", "eos"]
    assert drawn.mask.any(axis=1).tolist() == [True, True, False, True]
    assert not full.any()


def test_if_every_episode_fails_at_once_the_run_ends():
    with pytest.raises(CompletionsFailed, match="too long"):
        play(until([2, 2, 2, 2]), engine=Refuses(count=9))


def test_generators_are_of_the_sample_and_the_turn_and_resets_of_the_prompt():
    keys = jax.random.split(jax.random.key(0), (2, 3))
    make = Generators.of(keys)
    draws = {(row, turn): make(row=row, turn=turn).random() for row in range(6) for turn in range(3)}
    assert len(set(draws.values())) == 18
    assert make(row=4, turn=1).random() == draws[4, 1]
    assert make(prompt=1).random() == Generators.of(keys[1:])(prompt=0).random()
    assert make(prompt=0).random() != make(prompt=1).random()


def test_a_prompt_that_an_environment_makes_too_long_is_refused_and_not_cut():
    class Loop:
        max_turns, max_turn_tokens = 1, None

        def begin(self, examples, samples, generator):
            return attrs.make_class("Running", {"prompts": attrs.field(default=("four",))})()

    class Letters:
        pad_id = 0

        def encode(self, text):
            return [ord(letter) for letter in text]

    complete = Completer(engine=Echo(), tokenizer=Letters(), max_prompt_tokens=3, loop=Loop())
    with pytest.raises(DataError, match=r"a prompt has 4 tokens .* raise train.max_prompt_tokens = 3"):
        complete([{"prompt": "four"}], jax.random.split(jax.random.key(0), (1, 1)), Sampling())


def test_empty_episodes_have_the_shapes_of_others():
    empty = empty_episodes(2, 5)
    assert empty.turn_rewards.shape == empty.turn_mask.shape == empty.anchor_ids.shape == (2, 5)
    assert not empty.turn_mask.any()


class Apart:
    """Turns that go on one by one, the last row first; a row's second turn is drawn before another's first."""

    def __init__(self, engine, arguments):
        self.engine, self.arguments = engine, arguments

    def play(self, then):
        tokens, mask, keys, sampling, limit = self.arguments
        samples = keys.shape[1]
        for row in reversed(range(keys.size)):
            said, key = tokens[row // samples][mask[row // samples]].tolist(), keys.reshape(-1)[row : row + 1]
            while True:
                ids = np.array([said], np.int32)
                drawn = self.engine.generate(ids, ids > 0, key[:, None], attrs.evolve(sampling, max_tokens=limit))
                if (found := then(row, drawn)) is None:
                    break
                said, key = said + drawn.tokens[0][drawn.mask[0]].tolist() + found[0], found[1]


class Playing(Echo):
    """Samples as `Echo` does, in turns of their own."""

    def turns(self, *arguments):
        return Apart(self, arguments)


@pytest.mark.parametrize("max_tokens", [16, 7])
def test_episodes_that_do_not_wait_for_one_another_are_those_of_rounds(max_tokens):
    """The turns of an engine that has no `first` and `next` show that none of these is called."""

    def played(engine, alone=None):
        tokens = np.array([[0, 5, 6], [0, 0, 4]], np.int32)
        keys = jax.random.split(jax.random.key(0), (2, 2))
        rounds = Rounds(engine=engine, pad_id=PAD, max_turn_tokens=4)
        tape, full = rounds(tokens, tokens > 0, keys, Sampling(max_tokens=max_tokens), then, alone)
        return tape.completions(np.zeros(4, bool)), full

    then = until([2, 1, 3, 1])
    there, there_full = played(Echo())
    then = until([2, 1, 3, 1])
    here, here_full = played(Playing(), lambda row, turn, finish: then([row], [turn], [finish])[0])
    for name in ("tokens", "logps", "mask", "observed", "turns", "finish", "versions"):
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name), err_msg=name)
    np.testing.assert_array_equal(here_full, there_full)


def test_an_agent_loop_that_answers_single_turns_is_asked_for_them():
    class Running:
        prompts = ("ab",)

        def then(self, rows, turns, finish):
            raise AssertionError("it is asked for a round")

        def alone(self, row, turn, finish):
            return None

        def result(self, full):
            return empty_episodes(len(full), 1)

    class Loop:
        max_turns, max_turn_tokens = 1, 4

        def begin(self, examples, samples, generator):
            return Running()

    class Letters:
        pad_id = PAD

        def encode(self, text):
            return [ord(letter) for letter in text]

    complete = Completer(engine=Playing(), tokenizer=Letters(), max_prompt_tokens=3, loop=Loop())
    done = complete([{"prompt": "ab"}], jax.random.split(jax.random.key(0), (1, 2)), Sampling(max_tokens=8))
    assert done.completions.mask.sum(axis=1).tolist() == [3, 3]

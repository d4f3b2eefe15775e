"""Turns that continue the cache equal those that process the episode again, and no token is processed twice."""

import collections
import subprocess
import sys
import threading
import types

import attrs
import jax
import numpy as np
import pytest
from flax import nnx
from tests.devices import EIGHT

import dovetail
from dovetail.errors import RunError
from dovetail.host.episodes import Rounds
from dovetail.protocols import Sampling, Weights
from dovetail_kit.rollout import Numbers
from dovetail_lab.sweep import population
from dovetail_lab.sweep.population import Population
from dovetail_model.model.decoder import Decoder
from dovetail_rollout.decoding import batching, slots, turns
from dovetail_rollout.decoding.turns import cache_lengths
from dovetail_rollout.rollout.vanilla import Vanilla

SPEC = Decoder(width=8, layers=1, heads=2, kv_heads=1, ffn=8, init_std=0.4)
PROMPTS = np.array([[0, 0, 5, 6], [2, 3, 4, 5], [0, 0, 0, 9]])
MASK = PROMPTS > 0


@attrs.frozen
class Again:
    """An engine that cannot continue: the reference."""

    engine: object

    def generate(self, *arguments, **options):
        return self.engine.generate(*arguments, **options)


def policy(seed, spec=SPEC):
    graphdef, trained, frozen = nnx.split(spec.make(Numbers().vocab_size, rngs=nnx.Rngs(seed)), nnx.Param, ...)
    return graphdef, Weights(trained, frozen)


def opened(seed=0, spec=SPEC, **settings):
    return Vanilla(**settings).open(*policy(seed, spec), Numbers())


def says(seed, most_turns=4, longest=7):
    """Return an agent that ends episodes at different turns and answers with 0 to `longest` tokens."""
    seen = {}

    def then(rows, ended, finish):
        answers = []
        for row in rows:
            seen[row] = seen.get(row, 0) + 1
            rng = np.random.default_rng([seed, row, seen[row]])
            over = seen[row] >= most_turns or rng.random() < 0.2
            answers.append(None if over else rng.integers(2, 13, rng.integers(0, longest + 1)).tolist())
        return answers

    return then


def always(ids):
    """Return an agent that never ends an episode."""
    return lambda rows, ended, finish: [ids] * len(rows)


def play(engine, *, seed=0, samples=4, prompts=2, turn_tokens=12, agent=says, **sampling):
    keys = jax.random.split(jax.random.key(seed), (prompts, samples))
    tokens, mask = (np.resize(array, (prompts, 4)) for array in (PROMPTS, MASK))
    rounds = Rounds(engine=engine, pad_id=0, max_turn_tokens=turn_tokens)
    chosen = Sampling(**{"max_tokens": 48, "temperature": 1.3} | sampling)
    tape, full = rounds(tokens, mask, keys, chosen, agent(seed))
    return tape, full


def assert_same(engine, **settings):
    tape, full = play(engine, **settings)
    expected, expected_full = play(Again(engine), **settings)
    np.testing.assert_array_equal(tape.tokens, expected.tokens)
    for name in ("mask", "observed", "turns", "finish", "filled", "versions"):
        np.testing.assert_array_equal(getattr(tape, name), getattr(expected, name), err_msg=name)
    np.testing.assert_allclose(tape.logps, expected.logps, atol=1e-5)
    np.testing.assert_array_equal(full, expected_full)
    return tape


@pytest.fixture(scope="module")
def small():
    """Return an engine in which eight completions can move into two slots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "SMALLEST", 4)
        yield opened(shrink=True)


@pytest.fixture
def used(monkeypatch):
    """Count the calls of what happens to a cache."""
    calls = collections.Counter()

    def counted(name, function):
        def call(*arguments):
            calls[name] += 1
            return function(*arguments)

        monkeypatch.setattr(turns, name, call)

    counted("_pick", turns._pick)
    counted("_put", turns._put)
    return calls


@pytest.mark.slow
def test_it_equals_rounds_that_begin_again(small, used):
    ended_at = set()
    for seed, settings in enumerate(
        [
            {},
            {"agent": lambda seed: says(seed, most_turns=9)},
            {"agent": lambda seed: says(seed, longest=25)},
            {"stop": (" 7", " 3")},
        ]
    ):
        ended_at |= set(assert_same(small, seed=seed, **settings).turns.max(axis=1).tolist())
    assert used["_put"] > 2, "no turn ended before the others, except in the first call, which tries everything"
    assert len(ended_at) > 3, "episodes end at different turns"


@pytest.mark.slow
def test_caches_grow_and_are_cleared_of_holes(monkeypatch, used):
    monkeypatch.setattr(turns, "SHORTEST", 16)
    engine = opened(shrink=False)
    settings = {"prompts": 1, "turn_tokens": None, "max_tokens": 30}
    tape = assert_same(engine, agent=lambda _: always([5]), **settings)
    assert tape.filled.max() == 30, "a turn without a limit of its own ends where the episode does"
    assert_same(engine, seed=1, **settings)
    assert cache_lengths(30) == (16, 62)
    assert used["_pick"] > 4, "no cache was cleared of holes, except in the first call, which tries everything"


@pytest.mark.slow
def test_no_later_round_compiles_anything(small):
    play(small)
    programs = set(small.shapes)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(heard := lambda event, _, **__: compiled.append(event))
    for seed in range(3, 6):
        play(small, seed=seed, agent=lambda seed: says(seed, most_turns=9, longest=20))
    jax.monitoring.unregister_event_duration_listener(heard)
    assert not [event for event in compiled if "backend_compile" in event]
    assert small.shapes == programs


class Counting:
    """A model that counts the tokens that it processes."""

    def __init__(self, model, seen):
        self.model, self.seen = model, seen

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, tokens, mask, cache=None, **options):
        jax.debug.callback(lambda mask: self.seen.append(int(mask.sum())), mask)
        return self.model(tokens, mask, cache, **options)


def test_no_token_is_processed_twice(monkeypatch):
    engine = opened(spec=attrs.evolve(SPEC, ffn=4), shrink=False)  # nothing has been compiled for this model
    seen, merge = [], nnx.merge
    for module in (batching, turns):
        monkeypatch.setattr(module, "nnx", types.SimpleNamespace(merge=lambda *parts: Counting(merge(*parts), seen)))
    tape, _ = play(engine, samples=1)
    jax.effects_barrier()
    # the prompts, and of each episode every token but the last, which nothing follows
    assert sum(seen) == MASK[:2].sum() + (tape.filled - 1).sum()
    assert tape.turns.max() > 0


def test_weights_do_not_change_within_an_episode(small):
    def syncing(seed):
        def then(rows, ended, finish):
            small.sync(Weights(*small.weights), 1)
            return [[5]] * len(rows)

        return then

    with pytest.raises(RunError, match="replaced in the middle of an episode"):
        play(small, agent=syncing)


def test_an_observation_with_unknown_ids_fails_alone(small):
    def then(rows, ended, finish):
        return [None if len(rows) < 8 else [99] if row == 3 else [5] for row in rows]

    with pytest.warns(RuntimeWarning, match="completions"):
        tape, _ = play(small, agent=lambda _: then)
    assert (tape.finish == "error").tolist() == [row == 3 for row in range(8)]


def adapted(seed, spec=SPEC):
    """Return a model with a random adapter, of which only the adapter is trained."""
    model = spec.make(Numbers().vocab_size, rngs=nnx.Rngs(0))
    model = dovetail.get("adapter", "lora").bind(rank=2, alpha=4.0).apply(model, rngs=nnx.Rngs(seed))
    key = jax.random.key(seed)
    drawn = jax.tree.map(lambda leaf: 0.3 * jax.random.normal(key, leaf.shape), nnx.state(model, nnx.LoRAParam))
    nnx.update(model, drawn)
    graphdef, trained, frozen = nnx.split(model, nnx.LoRAParam, ...)
    return graphdef, Weights(trained, frozen)


@pytest.mark.slow
def test_adapters_are_in_the_cache_too():
    engines = [Vanilla(shrink=True).open(*adapted(seed), Numbers()) for seed in (1, 2)]
    first, second = (assert_same(engine, seed=1) for engine in engines)
    assert (first.tokens != second.tokens).any(), "the adapter changes nothing"
    engines[0].sync(Weights(*engines[1].weights), 1)
    np.testing.assert_array_equal(assert_same(engines[0], seed=1).tokens, second.tokens)


def assert_in_a_population(policies, vectorised):
    """Compare episodes of engines in threads, whose calls are combined, with each engine's own rounds."""
    runs, found = Population(len(policies)), {}

    def member(number):
        with runs.member(number):
            engine = Vanilla(shrink=True).open(*policies[number], Numbers())
            found[number] = play(engine, seed=number)[0]
            runs.align()

    threads = [threading.Thread(target=member, args=(number,), daemon=True) for number in range(len(policies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "the population is stuck"
    # later turns are drawn together only where as many episodes are left and as long
    assert vectorised["_begin"], "the first turns of two runs were not drawn in one call"
    assert vectorised["_resume"] + vectorised["_extend"], "no later call of two runs was made in one"
    for number, policy in enumerate(policies):
        expected, _ = play(Again(Vanilla(shrink=True).open(*policy, Numbers())), seed=number)
        np.testing.assert_array_equal(found[number].tokens, expected.tokens)
        np.testing.assert_array_equal(found[number].mask, expected.mask)
        np.testing.assert_allclose(found[number].logps, expected.logps, atol=1e-5)


@pytest.fixture
def vectorised(monkeypatch):
    """Count the programs that are combined, by the name of their function."""
    counts, made = collections.Counter(), population._vectorised

    def counted(program):
        counts[program.function.function.__name__] += 1
        return made(program)

    monkeypatch.setattr(population, "_vectorised", counted)
    return counts


@pytest.mark.slow
def test_runs_of_a_population_get_what_each_gets_alone(vectorised):
    assert_in_a_population([policy(seed) for seed in (0, 1)], vectorised)


@pytest.mark.slow
def test_adapters_of_a_population_share_their_base(vectorised):
    graphdef, first = adapted(1)
    assert_in_a_population([(graphdef, first), (graphdef, Weights(adapted(2)[1].trained, first.frozen))], vectorised)


@pytest.mark.slow
def test_a_mesh_changes_nothing(tmp_path):
    path = tmp_path / "drawn.npz"
    command = [sys.executable, "-W", "error", "-m", "tests.rollout.sharded_turns", str(path)]
    done = subprocess.run(command, check=False, env=EIGHT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    found = np.load(path)
    for way in ("1x1x1:cached", "2x2x2:cached", "2x2x2:by_rounds", "2x2x2:adapted", "2x2x2:adapted_by_rounds"):
        expected = "1x1x1:adapted_by_rounds" if "adapted" in way else "1x1x1:by_rounds"
        for name in ("tokens", "mask", "turns", "finish"):
            np.testing.assert_array_equal(found[f"{way}:{name}"], found[f"{expected}:{name}"], err_msg=f"{way}, {name}")
        # sums over gathered parts are rounded in another order
        np.testing.assert_allclose(found[f"{way}:logps"], found[f"{expected}:logps"], rtol=1e-5, atol=1e-5, err_msg=way)
    assert found["2x2x2:cached:turns"].max() == 3


def test_with_fewer_slots_than_completions_every_round_begins_again():
    keys = jax.random.split(jax.random.key(0), (3, 1))
    assert opened(slots=2).turns(PROMPTS, MASK, keys, Sampling(max_tokens=4), 4) is None

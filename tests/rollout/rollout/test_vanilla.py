import subprocess
import sys
import warnings
from pathlib import Path

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.devices import EIGHT

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError, DovetailWarning, RunError
from dovetail.protocols import Sampling, Weights
from dovetail_kit.rollout import EngineCase, Numbers
from dovetail_kit.rollout.checks import check_reported_logps
from dovetail_model.adapter.lora import linears
from dovetail_model.model.decoder import Decoder
from dovetail_rollout.decoding import batching
from dovetail_rollout.rollout.vanilla import Vanilla, _bucket

ROOT = Path(__file__).parents[3]
TINY = Decoder(width=8, layers=1, heads=1, kv_heads=1, ffn=8, init_std=0.4)
TOKENS = np.full((2, 3), 5)
SAMPLING = Sampling(temperature=0.9, top_p=0.9, max_tokens=5)
PROGRAMS = {f"jit({name})" for name in ("_begin", "_empty", "_extend", "_move", "_take")}
COMPILED = []
"""Those of the engine's programs that have been compiled in this module's tests, one after another."""


@pytest.fixture(scope="module", autouse=True)
def listening():
    def heard(event, duration_secs, fun_name=None, **_):
        if event == "/jax/core/compile/backend_compile_duration" and fun_name in PROGRAMS:
            COMPILED.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(heard)
    yield
    jax.monitoring.unregister_event_duration_listener(heard)


def weights(seed=0, spec=TINY):
    graphdef, trained, frozen = nnx.split(spec.make(Numbers().vocab_size, rngs=nnx.Rngs(seed)), nnx.Param, ...)
    return graphdef, Weights(trained, frozen)


def engine(seed=0, **settings):
    return Vanilla(**settings).open(*weights(seed), Numbers())


def generate(engine, sampling=SAMPLING, seed=0, tokens=TOKENS, samples=2):
    keys = jax.random.split(jax.random.key(seed), (len(tokens), samples))
    return engine.generate(tokens, np.ones_like(tokens, bool), keys, sampling)


def compiled():
    return len(COMPILED)


@pytest.mark.slow
def test_nothing_compiles_twice():
    first, before = engine(), compiled()
    generate(first)
    there = compiled()
    assert there - before == first.compiled == 3
    generate(first, seed=1)
    for change in ({"temperature": 0.0}, {"temperature": 1.3, "top_p": 0.5, "logps": "vocabulary"}, {"stop": ("q",)}):
        generate(first, attrs.evolve(SAMPLING, **change))
    second = engine(seed=1)
    generate(second)
    first.sync(weights(seed=1)[1], version=1)
    generate(first)
    assert compiled() == there
    assert first.compiled == 3
    generate(first, attrs.evolve(SAMPLING, max_tokens=4))
    assert compiled() - there == first.compiled - 3 == 3


@pytest.mark.slow
@pytest.mark.parametrize(("shortest", "width"), [(128, 3), (8, 4)], ids=["a cache that stays", "a cache that grows"])
def test_ragged_calls_meet_no_number_of_slots_that_the_first_has_not_compiled(monkeypatch, shortest, width):
    """The completions of the first call are equal, and end together; those of later ones whenever they like."""
    monkeypatch.setattr(batching, "SHORTEST", shortest)
    opened, before = engine(), compiled()
    prompts, most = np.full((8, width), 5), 36 + width
    sampling = attrs.evolve(SAMPLING, temperature=2.0, top_p=None, max_tokens=most)
    generate(opened, attrs.evolve(sampling, temperature=0.0), tokens=prompts, samples=8)
    there = compiled()
    assert there - before == opened.compiled
    lengths = set()
    for seed in range(6):
        drawn = generate(opened, sampling, seed=seed, tokens=prompts, samples=8)
        lengths |= set(drawn.mask.sum(axis=1).tolist())
    assert len(lengths) > 20
    assert compiled() == there


@pytest.mark.slow
def test_shapes_are_few_whatever_the_prompts_lengths():
    opened, before = engine(), compiled()
    sampling = attrs.evolve(SAMPLING, max_tokens=7)
    tokens, keys = np.full((2, 100), 5), jax.random.split(jax.random.key(0), (2, 2))
    for length in (1, 40, 64, 65, 100):
        opened.generate(tokens, np.tile(np.arange(100) >= 100 - length, (2, 1)), keys, sampling)
    # two buckets of prompts to read and to decode after, and one cache for both
    assert compiled() - before == opened.compiled == 2 + 2 + 1


@pytest.mark.parametrize(
    ("width", "used", "kept"), [(300, 1, 64), (300, 64, 64), (300, 65, 128), (300, 290, 300), (9, 2, 9)]
)
def test_buckets_of_prompt_lengths(width, used, kept):
    tokens = np.arange(2 * width).reshape(2, width)
    mask = np.arange(width) >= np.array([[width], [width - used]])
    short, short_mask = _bucket(tokens, mask)
    assert short.shape == short_mask.shape == (2, kept)
    np.testing.assert_array_equal(short[:, -1], tokens[:, -1])
    assert short_mask.sum() == used


@pytest.mark.slow
def test_completions_do_not_depend_on_slots_or_the_cache_s_growth(monkeypatch):
    sampling, tokens = Sampling(temperature=2.0, max_tokens=20), np.random.default_rng(0).integers(2, 13, (5, 4))
    alone = generate(engine(shrink=False), sampling, tokens=tokens, samples=7)
    assert len(set(alone.mask.sum(axis=1))) > 8, "lengths must be ragged"
    monkeypatch.setattr(batching, "SHORTEST", 8)
    monkeypatch.setattr(batching, "SLACK", 4)
    for settings in ({}, {"slots": 10}):
        opened = engine(**settings)
        other = generate(opened, sampling, tokens=tokens, samples=7)
        np.testing.assert_array_equal(other.tokens, alone.tokens)
        np.testing.assert_array_equal(other.finish, alone.finish)
        np.testing.assert_allclose(other.logps, alone.logps, atol=1e-5)
        grown = {shape[3] for shape in opened.shapes if shape[0] == "extend"}
        assert len(grown) > 1, "the cache must have grown"


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 0.05)])
def test_keys_and_values_may_have_a_dtype_of_their_own(dtype, tolerance):
    sampling = Sampling(temperature=0.0, max_tokens=6)
    expected, drawn = (generate(engine(cache_dtype=cache), sampling) for cache in (None, dtype))
    np.testing.assert_allclose(drawn.logps[:, 0], expected.logps[:, 0], atol=tolerance)
    cache = batching._empty(*weights(), 2, 3, dtype)
    assert {leaf.dtype for leaf in jax.tree.leaves(cache)} == {jnp.dtype(dtype), jnp.dtype(bool), jnp.dtype("int32")}


def test_weights_are_shared_and_let_go():
    graphdef, params = weights()
    opened = Vanilla().open(graphdef, params, Numbers())
    assert opened.weights is params
    generate(opened)
    opened.close()
    assert opened.weights is None
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(params))


def test_one_prompt_that_fails_is_named():
    tokens = TOKENS.copy()
    tokens[1, 0] = 999
    with pytest.warns(RuntimeWarning, match=r"completions \[2, 3\] failed"):
        drawn = generate(engine(), tokens=tokens)
    assert drawn.finish[2:].tolist() == ["error", "error"]


def test_a_policy_whose_logits_are_nan_raises():
    graphdef, params = weights()
    broken = jax.tree.map(lambda x: x * jnp.nan, params)
    opened = Vanilla().open(graphdef, broken, Numbers())
    with pytest.raises(RunError, match="every completion failed: the policy's logits are NaN or infinite"):
        generate(opened)


def test_a_folder_opens_too():
    folder = ROOT / "tests" / "fixtures" / "models" / "qwen2"
    tokenizer = Numbers(vocab_size=32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened = Vanilla().open_folder(folder, tokenizer)
    assert set(generate(opened).versions.flat) == {0}
    with pytest.raises(ConfigError, match="is not a folder"):
        Vanilla().open_folder(folder / "nowhere", tokenizer)


@pytest.mark.slow
def test_a_mesh_changes_nothing(tmp_path):
    path = tmp_path / "found.npz"
    command = [sys.executable, "-W", "error", "-m", "tests.rollout.sharded", str(path)]
    done = subprocess.run(command, env=EIGHT, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = np.load(path)
    np.testing.assert_array_equal(found["2x2x2:tokens"], found["1x1x1:tokens"])
    np.testing.assert_array_equal(found["2x2x2:finish"], found["1x1x1:finish"])
    np.testing.assert_allclose(found["2x2x2:logps"], found["1x1x1:logps"], atol=1e-4)


def test_slots_are_still_understood_as_lanes(tmp_path):
    (tmp_path / "old.gin").write_text("train.rollout = 'vanilla'\nrollout.vanilla.lanes = 3\n")
    with pytest.warns(DovetailWarning, match="write 'slots'"):
        config = load(tmp_path / "old.gin")
    assert config.choice("train.rollout").params["slots"] == 3


def with_magnitudes(seed):
    """Return a model with random magnitudes and factors."""
    adapter = dovetail.get("adapter", "lora").bind(rank=2, weight_decomposed=True)
    model = adapter.apply(TINY.make(Numbers().vocab_size, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(seed))
    key = jax.random.key(seed)
    drawn = jax.tree.map(lambda leaf: 0.5 * jax.random.normal(key, leaf.shape), nnx.state(model, nnx.LoRAParam))
    nnx.update(model, drawn)
    return model


def test_magnitudes_are_sampled_from_as_if_they_were_merged():
    model, plain = with_magnitudes(1), TINY.make(Numbers().vocab_size, rngs=nnx.Rngs(0))
    for name, linear in linears(plain).items():
        linear.kernel[...] = linears(model)[name].merged()
    case = EngineCase.of(Vanilla(), model, with_magnitudes(2), Numbers())
    check_reported_logps(case)
    other = EngineCase.of(Vanilla(), plain, plain, Numbers())
    found, expected = (each.generate(each.open(), SAMPLING) for each in (case, other))
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.logps, expected.logps, atol=1e-4)

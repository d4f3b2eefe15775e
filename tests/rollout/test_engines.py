"""What every rollout engine must do. An engine joins by being listed."""

import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.rollout.tiny import EOS, PAD, VOCAB, Ids

import dovetail
from dovetail.errors import DovetailError
from dovetail.protocols import Sampling
from dovetail_model.decoder import Decoder

ENGINES = ["vanilla"]

PROMPTS, LENGTH, SAMPLES = 4, 6, 3
TINY = Decoder(width=16, layers=2, heads=2, kv_heads=1, ffn=24, init_std=0.4)
RANDOM = Sampling(temperature=0.8, max_tokens=8)
GREEDY = Sampling(temperature=0.0, max_tokens=8)


@functools.cache
def model(seed=0):
    return nnx.split(TINY.make(VOCAB, rngs=nnx.Rngs(seed)))


@functools.cache
def prompts():
    tokens = np.random.default_rng(0).integers(2, VOCAB, (PROMPTS, LENGTH))
    mask = np.arange(LENGTH) >= np.array([0, 1, 3, 5])[:, None]
    return np.where(mask, tokens, PAD), mask


@functools.cache
def keys(seed=0):
    return jax.random.split(jax.random.key(seed), (PROMPTS, SAMPLES))


def open_engine(name):
    return dovetail.get("rollout", name).bind().open(*model(), Ids())


@pytest.fixture(scope="module", params=ENGINES)
def name(request):
    return request.param


@pytest.fixture
def engine(name):
    engine = open_engine(name)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def random(name):
    """Completions that no test changes."""
    return open_engine(name).generate(*prompts(), keys(), RANDOM)


@functools.partial(jax.jit, static_argnums=0)
def forward(graphdef, params, tokens, mask):
    """The model without a cache: logits after every token."""
    merged = nnx.merge(graphdef, params)
    return merged.logits(merged(tokens, mask)[0])


def rescored(completions, temperature, seed=0):
    """Log-probabilities of the completions' tokens by teacher forcing, at a temperature, and the logits."""
    tokens, mask = (np.repeat(array, SAMPLES, axis=0) for array in prompts())
    logits = forward(
        *model(seed), np.concatenate([tokens, completions.tokens], 1), np.concatenate([mask, completions.mask], 1)
    )
    logits = logits[:, LENGTH - 1 : -1]
    logps = jax.nn.log_softmax(logits / temperature, axis=-1)
    return jnp.take_along_axis(logps, completions.tokens[..., None], axis=-1)[..., 0], logits


def assert_rows_equal(here, rows, there):
    """Compare rows of two results."""
    np.testing.assert_array_equal(here.tokens[rows], there.tokens)
    np.testing.assert_array_equal(here.mask[rows], there.mask)
    np.testing.assert_array_equal(here.truncated[rows], there.truncated)
    np.testing.assert_allclose(here.logps[rows], there.logps, atol=1e-5)


def test_shapes_and_types(random):
    rows = PROMPTS * SAMPLES
    assert random.tokens.shape == random.mask.shape == random.logps.shape == (rows, RANDOM.max_tokens)
    assert random.truncated.shape == random.versions.shape == (rows,)
    assert [array.dtype.kind for array in (random.tokens, random.mask, random.logps)] == ["i", "b", "f"]
    assert random.logps.dtype == np.float32
    assert all(isinstance(array, np.ndarray) for array in attrs.astuple(random))


def test_the_end_is_in_the_mask_and_nothing_after_it(random):
    lengths = random.mask.sum(axis=1)
    ended = 0
    for tokens, mask, logps, length, truncated in zip(
        random.tokens, random.mask, random.logps, lengths, random.truncated, strict=True
    ):
        assert mask[:length].all()
        assert EOS not in tokens[: length - 1]
        assert truncated == (tokens[length - 1] != EOS)
        assert length == RANDOM.max_tokens or not truncated
        assert set(tokens[length:]) <= {PAD}
        assert not logps[length:].any()
        ended += not truncated
    assert 0 < ended < len(lengths), "the case must show both endings"


@pytest.mark.parametrize(
    "sampling",
    [
        RANDOM,
        attrs.evolve(RANDOM, temperature=1.7),
        attrs.evolve(RANDOM, top_k=4, top_p=0.9),
        GREEDY,
    ],
    ids=["random", "hot", "cut", "greedy"],
)
def test_reported_logps_equal_a_rescore_over_the_whole_vocabulary(engine, sampling):
    completions = engine.generate(*prompts(), keys(), sampling)
    logps, _ = rescored(completions, sampling.temperature or 1.0)
    np.testing.assert_allclose(completions.logps, np.where(completions.mask, logps, 0), atol=1e-4)


def test_greedy_is_the_argmax_of_the_uncached_forward(engine):
    completions = engine.generate(*prompts(), keys(), GREEDY)
    _, logits = rescored(completions, 1.0)
    best = np.argmax(logits, axis=-1)
    np.testing.assert_array_equal(completions.tokens[completions.mask], best[completions.mask])


def test_top_1_equals_greedy(engine):
    greedy = engine.generate(*prompts(), keys(), GREEDY)
    top_1 = engine.generate(*prompts(), keys(), Sampling(temperature=1.0, top_k=1, max_tokens=8))
    assert_rows_equal(greedy, slice(None), top_1)


def test_the_same_keys_give_the_same_completions(engine, random):
    assert_rows_equal(random, slice(None), engine.generate(*prompts(), keys(), RANDOM))


def test_other_keys_give_other_completions(engine, random):
    other = engine.generate(*prompts(), keys(1), RANDOM)
    assert np.mean(np.any(other.tokens != random.tokens, axis=1)) > 0.5


def test_samples_of_a_prompt_differ(random):
    groups = random.tokens.reshape(PROMPTS, SAMPLES, -1)
    assert all(len({tuple(row) for row in group}) > 1 for group in groups)


def test_a_completion_does_not_depend_on_the_batch(engine, random):
    tokens, mask = prompts()
    rows = np.arange(PROMPTS * SAMPLES).reshape(PROMPTS, SAMPLES)
    for half in (slice(0, 2), slice(2, 4)):
        part = engine.generate(tokens[half], mask[half], keys()[half], RANDOM)
        assert_rows_equal(random, rows[half].ravel(), part)
    order = np.array([2, 0, 3, 1])
    permuted = engine.generate(tokens[order], mask[order], keys()[order], RANDOM)
    assert_rows_equal(random, rows[order].ravel(), permuted)
    single = engine.generate(tokens, mask, keys()[:, 1:2], RANDOM)
    assert_rows_equal(random, rows[:, 1], single)


def test_more_padding_changes_nothing(engine, random):
    tokens, mask = (np.pad(array, ((0, 0), (3, 0))) for array in prompts())
    assert_rows_equal(random, slice(None), engine.generate(tokens, mask, keys(), RANDOM))


def test_a_lower_limit_cuts_the_same_completions(engine, random):
    short = engine.generate(*prompts(), keys(), attrs.evolve(RANDOM, max_tokens=1))
    np.testing.assert_array_equal(short.tokens, random.tokens[:, :1])
    np.testing.assert_array_equal(short.truncated, random.tokens[:, 0] != EOS)


def test_an_empty_prompt_gives_finite_numbers(engine):
    tokens, mask = prompts()
    completions = engine.generate(tokens, np.concatenate([mask[:3], np.zeros_like(mask[3:])]), keys(), RANDOM)
    assert np.isfinite(completions.logps).all()


def test_sync_changes_samples_and_versions(engine, random):
    assert set(random.versions) == {0}
    engine.sync(model(seed=1)[1], version=7)
    after = engine.generate(*prompts(), keys(), RANDOM)
    assert set(after.versions) == {7}
    assert np.any(after.tokens != random.tokens)
    logps, _ = rescored(after, RANDOM.temperature, seed=1)
    np.testing.assert_allclose(after.logps, np.where(after.mask, logps, 0), atol=1e-4)


def test_close_twice_and_use_after_close(engine):
    engine.close()
    engine.close()
    with pytest.raises(DovetailError, match="closed"):
        engine.generate(*prompts(), keys(), RANDOM)
    with pytest.raises(DovetailError, match="closed"):
        engine.sync(model()[1], version=1)


def test_prompts_are_checked(engine):
    tokens, mask = prompts()
    with pytest.raises(DovetailError, match="pad prompts on the left"):
        engine.generate(tokens, mask[:, ::-1], keys(), RANDOM)

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dovetail_rollout.decoding import draw as module

draw = jax.jit(module.draw)


def drawn(weights, uniform):
    """Draw with every pair of `uniform`."""
    first, second = jnp.meshgrid(*[jnp.asarray(uniform, jnp.float32)] * 2)
    rows = jnp.broadcast_to(jnp.asarray(weights, jnp.float32)[None, :], (first.size, len(weights)))
    return np.asarray(draw(rows, jnp.stack([first.ravel(), second.ravel()], axis=1)))


@pytest.mark.parametrize("tokens", [1, 3, 16, 17, 100])
def test_an_even_grid_of_uniforms_gives_the_weights(tokens):
    weights = np.random.default_rng(tokens).gamma(0.3, size=tokens)
    size = 200
    counts = np.bincount(drawn(weights, (np.arange(size) + 0.5) / size), minlength=tokens)
    # each token owns a rectangle of the unit square, so its share is exact but for the two ends of either side
    np.testing.assert_allclose(counts / size**2, weights / weights.sum(), atol=2.1 / size)


def test_distribution_of_random_draws():
    # 200,000 draws of 150 tokens: an error of 10% in every other token is found with a power above 0.99
    draws, level = 200_000, 1e-3
    p = np.random.default_rng(0).dirichlet(np.full(150, 2.0))
    threshold = stats.chi2.isf(level, len(p) - 1)
    assert stats.ncx2.sf(threshold, len(p) - 1, draws * np.sum(p * 0.1**2) / 2) > 0.99
    rows = jnp.broadcast_to(jnp.asarray(p, jnp.float32)[None, :], (20_000, 150))
    counts = sum(
        np.bincount(draw(rows, jax.random.uniform(jax.random.key(chunk), (20_000, 2))), minlength=150)
        for chunk in range(10)
    )
    assert np.sum((counts - draws * p) ** 2 / (draws * p)) < threshold


@pytest.mark.parametrize("seed", range(3))
def test_a_token_of_weight_zero_is_never_drawn(seed):
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random(500) < 0.9, 0, 10.0 ** rng.uniform(-30, 0, 500)).astype(np.float32)
    weights[[0, -1]] = 0
    ends = [0.0, 1e-30, np.nextafter(np.float32(1), np.float32(0))]
    # the ends of every block's interval and of those of the tokens in one, and their neighbours
    blocks = np.pad(weights, (0, 12)).reshape(-1, 16)
    fullest = blocks[np.argmax((blocks > 0).sum(axis=1))]
    edges = np.concatenate([np.cumsum(x) / x.sum() for x in (blocks.sum(axis=1), fullest)]).astype(np.float32)
    near = [np.nextafter(edges, np.float32(side)) for side in (0, 1)]
    uniform = np.clip(np.concatenate([ends, edges, *near]), 0, ends[-1])
    assert np.all(weights[drawn(weights, uniform)] > 0)


def test_one_token_of_positive_weight_is_always_drawn():
    weights = np.zeros(200)
    weights[137] = 2e-38
    assert set(drawn(weights, np.linspace(0, 0.9999999, 50))) == {137}


def test_rows_are_independent():
    weights = jax.random.uniform(jax.random.key(0), (6, 70))
    uniform = jax.random.uniform(jax.random.key(1), (6, 2))
    one_by_one = [int(draw(weights[row : row + 1], uniform[row : row + 1])[0]) for row in range(6)]
    assert draw(weights, uniform).tolist() == one_by_one


def test_ids_stay_in_the_vocabulary_when_weights_are_nan():
    assert 0 <= drawn([np.nan] * 3, [0.5])[0] < 3


def test_the_last_bits_of_weights_seldom_matter():
    # what another shape of the batch does to weights: of 100,000 draws among 4096 tokens not 1 in 2,000 differs
    rng = np.random.default_rng(0)
    weights = jnp.asarray(np.exp(rng.normal(0, 0.3, 4096)), jnp.float32)
    noisy = weights * (1 + jnp.asarray(rng.normal(0, 2e-7, 4096), jnp.float32))
    uniform = jnp.asarray(rng.random((100_000, 2)), jnp.float32)

    def all_rows(weights):
        one = jax.jit(lambda uniform: module.draw(weights[None], uniform[None])[0])
        return jax.lax.map(one, uniform, batch_size=1000)

    assert jnp.mean(all_rows(weights) != all_rows(noisy)) < 5e-4

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import Fact, load

from dovetail_rollout.decoding import sampling

SIZE = 200
LINE = (jnp.arange(SIZE, dtype=jnp.float32) + 0.5) / SIZE
GRID = jnp.stack([axis.ravel() for axis in jnp.meshgrid(LINE, LINE)], axis=1)

sample = jax.jit(sampling.sample, static_argnames="top_k")


def sweep(logits, temperature=1.0, top_p=None, top_k=None, min_p=None, over_support=False):
    """Tokens and log-probabilities over an even grid of uniform numbers: the distribution, to 1 in 100."""
    rows = jnp.broadcast_to(jnp.asarray(logits, jnp.float32)[None, :], (len(GRID), len(logits)))
    cuts = (None if cut is None else jnp.float32(cut) for cut in (top_p, min_p))
    numbers = sampling.Numbers(jnp.float32(temperature), jnp.array(over_support), *cuts)
    tokens, logps, _ = sample(rows, GRID, numbers, top_k)
    return np.asarray(tokens), np.asarray(logps)


def log_softmax(logits):
    return logits - np.log(np.sum(np.exp(logits)))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_temperature(temperature):
    logits = np.array([0.0, 1.0, -1.0, 2.0])
    tokens, logps = sweep(logits, temperature)
    expected = log_softmax(logits / temperature)
    np.testing.assert_allclose(np.bincount(tokens) / len(GRID), np.exp(expected), atol=2.1 / SIZE)
    np.testing.assert_allclose(logps, expected[tokens], atol=1e-5)


@pytest.mark.parametrize("logits", [[0.0, 2.0, 1.0], [1.0, 2.0, 2.0], [-1e30, -np.inf, 0.0]])
def test_temperature_zero_is_greedy_and_reports_at_temperature_one(logits):
    tokens, logps = sweep(logits, temperature=0.0)
    assert set(tokens) == {int(np.argmax(logits))}
    np.testing.assert_allclose(logps, log_softmax(np.array(logits))[tokens], atol=1e-5)


@pytest.mark.parametrize(
    ("cut", "support"),
    [
        ({"top_k": 1}, {3}),
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 3}, {0, 1, 3}),
        ({"top_k": 99}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.6}, {3}),
        ({"top_p": 0.7}, {1, 3}),
        ({"top_p": 1.0}, {0, 1, 2, 3, 4}),
        # of the two largest, 8 / 12 of the mass is at 3: the nucleus is of what top-k left
        ({"top_k": 2, "top_p": 0.65}, {3}),
        ({"top_k": 2, "top_p": 0.7}, {1, 3}),
        ({"min_p": 0.5}, {1, 3}),
        ({"min_p": 0.51}, {3}),
        ({"min_p": 0.0625}, {0, 1, 3}),
        # of 0, 1 and 3, which min-p left, 12 / 12.5 of the mass is at 1 and 3
        ({"min_p": 0.0625, "top_p": 0.95}, {1, 3}),
    ],
    ids=str,
)
def test_cuts(cut, support):
    weights = np.array([0.5, 4.0, 0.25, 8.0, 0.25])  # of 13; 0 precedes its equals, 2 precedes 4
    tokens, logps = sweep(np.log(weights), **cut)
    assert set(tokens) == support
    inside = weights * np.isin(np.arange(5), list(support))
    np.testing.assert_allclose(np.bincount(tokens, minlength=5) / len(GRID), inside / inside.sum(), atol=2.1 / SIZE)
    np.testing.assert_allclose(logps, np.log(weights / 13)[tokens], atol=1e-5)
    again, logps = sweep(np.log(weights), **cut, over_support=True)
    np.testing.assert_array_equal(again, tokens)
    np.testing.assert_allclose(logps, np.log(weights / inside.sum())[tokens], atol=1e-5)


def test_many_candidates_are_cut_in_place_and_few_gathered(monkeypatch):
    weights = np.random.default_rng(0).integers(0, 9, 40).astype(np.float32)  # with ties
    gathered = sweep(np.log(weights + 0.5), top_k=7, top_p=0.9, over_support=True)
    monkeypatch.setattr(sampling, "GATHERED", 6)
    sample.clear_cache()
    in_place = sweep(np.log(weights + 0.5), top_k=7, top_p=0.9, over_support=True)
    sample.clear_cache()
    assert set(gathered[0]) == set(in_place[0])
    np.testing.assert_allclose(
        np.bincount(gathered[0], minlength=40), np.bincount(in_place[0], minlength=40), atol=2.1 * SIZE
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinite_logits_give_a_report_that_is_not_finite(bad):
    for temperature in (0.0, 1.0):
        tokens, logps = sweep([0.0, bad, 1.0], temperature)
        assert not np.isfinite(logps).any()
        assert np.all((tokens >= 0) & (tokens < 3))


def test_equal_logits_are_taken_in_order():
    assert set(sweep([1.0, 1.0, 1.0, 0.0], top_k=2)[0]) == {0, 1}
    assert set(sweep([1.0, 1.0, 1.0, 0.0], top_k=1)[0]) == set(sweep([1.0, 1.0, 1.0, 0.0], temperature=0.0)[0]) == {0}


def test_large_logits_do_not_overflow():
    tokens, logps = sweep([3e38, 2e38, -3e38], temperature=0.5)
    assert set(tokens) == {0}
    assert np.all(logps == 0)


CASES = [
    "T1.0_p1.0_kNone",
    "T1.0_p1.0_k4",
    "T0.7_p0.9_kNone",
    "T0.7_p0.8_k5",
    "T2.0_p1.0_kNone",
    "T2.0_p1.0_k4",
]


def facts():
    """Tunix's cases of this file."""
    return [Fact("tunix", "tunix.generate.sampler.sample_top_p", f"sample/top_p/{name}") for name in CASES]


@pytest.mark.parametrize("name", CASES)
def test_golden_tunix(name):
    cases, arrays = load("tunix")
    case = next(case for case in cases if case["name"] == f"sample/top_p/{name}")
    config = case["config"]
    for row in range(2):
        logits = arrays[case["inputs"]["logits"]][row, -1]
        tokens, logps = sweep(logits, config["temperature"], config["top_p"], config["top_k"])
        theirs, reported = (arrays[case["outputs"][key]][row] for key in ("token", "logprob"))
        np.testing.assert_allclose(logps[tokens == theirs][0], reported, atol=1e-5)
        p = np.exp(log_softmax(logits.astype(np.float64) / config["temperature"]))
        support = support_of(p, config["top_p"], config["top_k"])
        # a token lighter than the grid's spacing may fall between its points
        assert {token for token in support if p[token] > 0.03} <= set(tokens) <= support


def support_of(p, top_p, top_k):
    """The peer's definition: sort, keep while the mass before is at most `top_p`, of the `top_k` first."""
    order = np.argsort(-p)[:top_k]
    return set(order[np.cumsum(p[order]) - p[order] <= top_p])

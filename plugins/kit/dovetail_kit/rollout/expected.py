"""The log-probabilities that an engine must report, computed in float64 by sorting the vocabulary."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from dovetail.config.settings import Sampling
from dovetail.protocols import Completions
from dovetail_kit.rollout.case import EngineCase


def expected_logps(
    logits: Float[np.ndarray, "seq token vocab"], tokens: Int[np.ndarray, "seq token"], sampling: Sampling
) -> Float[np.ndarray, "seq token"]:
    """Return the log-probabilities that an engine must report, in nats; -inf for a token outside the support.

    >>> logits = np.log([[[0.5, 0.3, 0.2]]])
    >>> np.exp(expected_logps(logits, np.array([[1]]), Sampling(top_k=2))).round(3)
    array([[0.375]])
    >>> np.exp(expected_logps(logits, np.array([[1]]), Sampling(top_k=2, logps="vocabulary"))).round(3)
    array([[0.3]])
    """
    scaled = logits.astype(np.float64) / (sampling.temperature or 1.0)
    p = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    kept = np.ones(p.shape, bool) if sampling.temperature == 0 else _support(p, sampling)
    if sampling.logps == "support":
        p = p / np.sum(np.where(kept, p, 0), axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.take_along_axis(np.log(np.where(kept, p, 0)), tokens[..., None], axis=-1)[..., 0]


def _support(p: Float[np.ndarray, "*batch vocab"], sampling: Sampling) -> Bool[np.ndarray, "*batch vocab"]:
    """Tell which tokens may be drawn: min-p, then top-k, then top-p of what is left."""
    kept = p >= (sampling.min_p or 0) * p.max(axis=-1, keepdims=True)
    order = np.argsort(-np.where(kept, p, -1), axis=-1, kind="stable")
    rank = np.argsort(order, axis=-1, kind="stable")
    kept &= rank < (sampling.top_k or p.shape[-1])
    left = np.take_along_axis(np.where(kept, p, 0), order, axis=-1)
    before = np.cumsum(left, axis=-1) - left
    needed = (sampling.top_p or 1.0) * left.sum(axis=-1, keepdims=True)
    # Slightly less than needed: if the first tokens add up to exactly that, rounding must not let in one more.
    return kept & np.take_along_axis(before < needed * (1 - 1e-6) if sampling.top_p else before >= 0, rank, axis=-1)


def assert_of_their_versions(case: EngineCase, drawn: Completions, read: Completions, sampling: Sampling) -> None:
    """Assert that each token has the log-probability under the weights of version 0 or 5 that it is said to be of.

    Args:
        case: the engine's case; `weights` are version 0, and `other` version 5.
        drawn: the completions.
        read: the same with all that the model has read, such as what was observed between turns.
        sampling: how they were drawn.
    """
    for version, weights in ((0, case.weights), (5, case.other)):
        theirs = drawn.mask & (drawn.versions == version)
        expected = expected_logps(case.logits(read, weights), drawn.tokens, sampling)
        np.testing.assert_allclose(
            drawn.logps[theirs],
            expected[theirs],
            atol=case.tolerance,
            err_msg=f"log-probabilities of the tokens said to be of version {version}",
        )

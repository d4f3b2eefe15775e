"""What every rollout engine must do.

    case = EngineCase.of(MyRollout(), model, other_model, tokenizer)
    for check in CHECKS:
        check(case)

A check raises `AssertionError` with the numbers that are wrong; its docstring says what it is about and what usually is
the cause. Engines are compared with the model itself, run without a cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from dovetail.config.settings import Sampling
from dovetail.errors import DovetailError
from dovetail.protocols import Completions, Rollout, RolloutEngine, Tokenizer, Weights

PROMPTS, SAMPLES, LENGTH, MAX_TOKENS = 4, 8, 6, 8
RANDOM: Final = Sampling(temperature=0.8, max_tokens=MAX_TOKENS)
GREEDY: Final = Sampling(temperature=0.0, max_tokens=MAX_TOKENS)
CUTS: Final = (
    Sampling(temperature=0.8, top_k=4, max_tokens=MAX_TOKENS),
    Sampling(temperature=1.2, top_p=0.8, max_tokens=MAX_TOKENS),
    Sampling(temperature=1.0, top_k=4, top_p=0.9, min_p=0.1, max_tokens=MAX_TOKENS),
)


@attrs.frozen
class Numbers:
    """A tokenizer without text: token 17 is '17', numbers are separated by spaces."""

    vocab_size: int = 13
    pad_id: int = 0
    eos_ids: tuple[int, ...] = (1,)

    def encode(self, text: str) -> list[int]:
        """Return the numbers."""
        return [int(word) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the numbers that mean something, each after a space."""
        return "".join(f" {token}" for token in ids if token not in (self.pad_id, *self.eos_ids))

    def save(self, folder: Path) -> None:
        """Write nothing: there is nothing to remember."""


@attrs.frozen(kw_only=True)
class EngineCase:
    """An engine to check, and the model that it must agree with.

    Attributes:
        open: opens the engine with `weights`.
        graphdef: structure of the model; its vocabulary is the tokenizer's. Completions of at most 8 tokens should
            sometimes end with an EOS and sometimes not.
        weights: version 0.
        other: weights to sync.
        claims: what the engine's class declares.
        tolerance: of log-probabilities, in nats; 1e-4 for float32, about 0.05 for bfloat16.
    """

    open: Callable[[], RolloutEngine]
    graphdef: Any = attrs.field(repr=False)
    weights: Weights = attrs.field(repr=False)
    other: Weights = attrs.field(repr=False)
    tokenizer: Tokenizer
    claims: Mapping[str, bool] = MappingProxyType({})
    tolerance: float = 1e-4

    @classmethod
    def of(
        cls, rollout: Rollout, model: nnx.Module, other: nnx.Module, tokenizer: Tokenizer, *, tolerance: float = 1e-4
    ) -> EngineCase:
        """Return the case of a component with its hyperparameters set."""
        graphdef, weights, frozen = nnx.split(model, nnx.Param, ...)
        _, theirs, rest = nnx.split(other, nnx.Param, ...)
        return cls(
            open=lambda: rollout.open(graphdef, Weights(weights, frozen), tokenizer),
            graphdef=graphdef,
            weights=Weights(weights, frozen),
            other=Weights(theirs, rest),
            tokenizer=tokenizer,
            claims=getattr(type(rollout), "declares", {}),
            tolerance=tolerance,
        )

    def sharing(self, engine: RolloutEngine) -> EngineCase:
        """Return the case of one open engine for all checks but `check_close`, where opening takes long.

        Each `open` gives it the first weights again; nothing closes it.
        """

        def view() -> RolloutEngine:
            engine.sync(self.weights, 0)
            return _View(engine)

        return attrs.evolve(self, open=view)

    def prompts(self) -> tuple[Int[np.ndarray, "prompt position"], Bool[np.ndarray, "prompt position"]]:
        """Return prompts of several lengths, padded on the left, and their mask."""
        special = {self.tokenizer.pad_id, *self.tokenizer.eos_ids}
        ids = [token for token in range(self.tokenizer.vocab_size) if token not in special]
        tokens = np.random.default_rng(0).choice(ids, (PROMPTS, LENGTH))
        mask = np.arange(LENGTH) >= np.array([0, 1, 3, LENGTH - 1])[:, None]
        return np.where(mask, tokens, self.tokenizer.pad_id), mask

    def generate(
        self, engine: RolloutEngine, sampling: Sampling, keys: Key[Array, "prompt sample"] | None = None
    ) -> Completions:
        """Sample completions of the prompts with the usual keys, or others."""
        return engine.generate(*self.prompts(), make_keys() if keys is None else keys, sampling)

    def logits(self, completions: Completions, weights: Weights) -> Float[np.ndarray, "seq token vocab"]:
        """Return what the model says at each completion token, without a cache."""
        tokens, mask = (np.repeat(array, len(completions.tokens) // PROMPTS, axis=0) for array in self.prompts())
        together = (
            np.concatenate([tokens, completions.tokens], axis=1),
            np.concatenate([mask, completions.mask], axis=1),
        )
        return np.asarray(_forward(self.graphdef, weights, *together))[:, LENGTH - 1 : -1]


@attrs.frozen
class _View:
    """An engine that outlives its `close`."""

    engine: RolloutEngine

    def generate(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
    ) -> Completions:
        """Ask the engine."""
        return self.engine.generate(prompt_tokens, prompt_mask, keys, sampling)

    def sync(self, weights: Weights, version: int) -> None:
        """Tell the engine."""
        self.engine.sync(weights, version)

    def close(self) -> None:
        """Leave it open."""


def make_keys(seed: int = 0, prompts: int = PROMPTS, samples: int = SAMPLES) -> Key[Array, "prompt sample"]:
    """Return a key for each completion."""
    return jax.random.split(jax.random.key(seed), (prompts, samples))


def expected_logps(
    logits: Float[np.ndarray, "seq token vocab"], tokens: Int[np.ndarray, "seq token"], sampling: Sampling
) -> Float[np.ndarray, "seq token"]:
    """Return what an engine must report, computed by sorting: -inf for a token outside the support.

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
    # A hair less than needed: the sum of the first tokens may be it exactly.
    return kept & np.take_along_axis(before < needed * (1 - 1e-6) if sampling.top_p else before >= 0, rank, axis=-1)


@functools.partial(jax.jit, static_argnums=0)
def _forward(graphdef: Any, weights: Weights, tokens: Array, mask: Array) -> Float[Array, "seq token vocab"]:
    model: Any = nnx.merge(graphdef, *weights)
    return model.logits(model(tokens, mask)[0]).astype(jnp.float32)


def assert_same(case: EngineCase, here: Completions, there: Completions, rows: Any = slice(None)) -> None:
    """Compare these rows of `here` with all of `there`."""
    for name in ("tokens", "mask", "finish"):
        np.testing.assert_array_equal(getattr(here, name)[rows], getattr(there, name), err_msg=name)
    np.testing.assert_allclose(here.logps[rows], there.logps, atol=case.tolerance, err_msg="logps")


def _assert_reported(case: EngineCase, completions: Completions, sampling: Sampling, weights: Weights) -> None:
    expected = expected_logps(case.logits(completions, weights), completions.tokens, sampling)
    np.testing.assert_allclose(
        completions.logps,
        np.where(completions.mask, expected, 0.0),
        atol=case.tolerance,
        err_msg=f"reported log-probabilities against those of the model, {sampling}",
    )


def check_shapes_and_types(case: EngineCase) -> None:
    """Arrays are numpy's, one row per completion; `logps` is float32."""
    drawn = case.generate(case.open(), RANDOM)
    rows = PROMPTS * SAMPLES
    assert drawn.tokens.shape == drawn.mask.shape == drawn.logps.shape == (rows, MAX_TOKENS)
    assert drawn.finish.shape == drawn.versions.shape == (rows,)
    assert all(isinstance(array, np.ndarray) for array in attrs.astuple(drawn))
    assert [array.dtype.kind for array in (drawn.tokens, drawn.mask, drawn.versions)] == ["i", "b", "i"]
    assert drawn.logps.dtype == np.float32


def check_reported_logps(case: EngineCase) -> None:
    """Reported log-probabilities are the model's at the sampling temperature.

    The usual causes: the report is at temperature 1, it is in the engine's dtype, or prompts are read with other
    positions than the model's (padding counted).
    """
    engine = case.open()
    for sampling in (RANDOM, attrs.evolve(RANDOM, temperature=1.7), GREEDY):
        _assert_reported(case, case.generate(engine, sampling), sampling, case.weights)


def check_reported_logps_of_cuts(case: EngineCase) -> None:
    """Where top-k, top-p or min-p cut, the report is over the support, or, if asked, over the whole vocabulary."""
    engine = case.open()
    for sampling in CUTS:
        _assert_reported(case, case.generate(engine, sampling), sampling, case.weights)
        if case.claims.get("vocabulary_logps", True):
            whole = attrs.evolve(sampling, logps="vocabulary")
            _assert_reported(case, case.generate(engine, whole), whole, case.weights)


def check_cuts_draw_from_the_support(case: EngineCase) -> None:
    """No token outside the support is ever drawn."""
    engine = case.open()
    for sampling in CUTS:
        drawn = case.generate(engine, sampling)
        logps = expected_logps(case.logits(drawn, case.weights), drawn.tokens, sampling)
        assert np.isfinite(logps[drawn.mask]).all(), f"{sampling}: tokens outside the support"


def check_greedy_is_the_argmax(case: EngineCase) -> None:
    """Temperature 0 takes the likeliest token at every position, and `top_k` 1 does at any temperature."""
    engine = case.open()
    for sampling in (GREEDY, attrs.evolve(RANDOM, top_k=1)):
        drawn = case.generate(engine, sampling)
        logits = case.logits(drawn, case.weights)
        chosen = np.take_along_axis(logits, drawn.tokens[..., None], axis=-1)[..., 0]
        np.testing.assert_allclose(chosen[drawn.mask], logits.max(axis=-1)[drawn.mask], atol=case.tolerance)


def check_same_keys_same_completions(case: EngineCase) -> None:
    """The keys decide: the same ones give the same completions in another engine and again, others give others."""
    engine = case.open()
    first = case.generate(engine, RANDOM)
    assert_same(case, first, case.generate(engine, RANDOM))
    assert_same(case, first, case.generate(case.open(), RANDOM))
    other = case.generate(engine, RANDOM, make_keys(seed=1))
    assert np.mean(np.any(other.tokens != first.tokens, axis=1)) > 0.5, "other keys, and still the same completions"


def check_samples_of_a_prompt_differ(case: EngineCase) -> None:
    """The completions of one prompt are samples, not copies: one seed for all of them is the usual cause."""
    drawn = case.generate(case.open(), RANDOM)
    for group in drawn.tokens.reshape(PROMPTS, SAMPLES, -1):
        assert len({tuple(row) for row in group}) > 1, "all completions of a prompt are equal"


def check_batch_does_not_matter(case: EngineCase) -> None:
    """A completion depends on its prompt and key alone: not on the batch, its order, or padding (`batch_invariant`)."""
    if not case.claims.get("batch_invariant"):
        return
    engine = case.open()
    whole = case.generate(engine, RANDOM)
    (tokens, mask), keys = case.prompts(), make_keys()
    rows = np.arange(PROMPTS * SAMPLES).reshape(PROMPTS, SAMPLES)
    for some in (np.array([0, 1]), np.array([3]), np.array([2, 0, 3, 1])):
        assert_same(case, whole, engine.generate(tokens[some], mask[some], keys[some], RANDOM), rows[some].ravel())
    assert_same(case, whole, engine.generate(tokens, mask, keys[:, 1:2], RANDOM), rows[:, 1])
    tokens, mask = (np.pad(array, ((0, 0), (3, 0))) for array in (tokens, mask))
    assert_same(case, whole, engine.generate(tokens, mask, keys, RANDOM))


def check_eos_is_kept(case: EngineCase) -> None:
    """A completion ends with its EOS, which it keeps, inside the mask; after it there is padding."""
    drawn = case.generate(case.open(), RANDOM)
    assert set(drawn.finish) == {"eos", "length"}, "the model of the case must show both endings"
    for tokens, mask, logps, finish in zip(drawn.tokens, drawn.mask, drawn.logps, drawn.finish, strict=True):
        length = int(mask.sum())
        assert mask[:length].all(), "the mask has a hole"
        assert not set(tokens[: length - 1]) & set(case.tokenizer.eos_ids), "sampling went on after an EOS"
        assert (tokens[length - 1] in case.tokenizer.eos_ids) == (finish == "eos"), "EOS cut off, or not said"
        assert set(tokens[length:]) <= {case.tokenizer.pad_id}
        assert not logps[length:].any(), "log-probabilities outside the mask"


def check_length_limit(case: EngineCase) -> None:
    """`max_tokens` cuts the same completions, and those it cuts say so."""
    engine = case.open()
    full = case.generate(engine, RANDOM)
    for limit in (1, 3):
        short = case.generate(engine, attrs.evolve(RANDOM, max_tokens=limit))
        assert short.tokens.shape[1] == limit
        np.testing.assert_array_equal(short.truncated, full.mask.sum(axis=1) + full.truncated > limit)
        if case.claims.get("batch_invariant"):
            np.testing.assert_array_equal(short.tokens, full.tokens[:, :limit])


def check_stop_strings(case: EngineCase) -> None:
    """A completion ends with the token that completes a stop string, keeps it, and says 'stop'."""
    engine, decode = case.open(), case.tokenizer.decode
    full = case.generate(engine, RANDOM)
    row = full.tokens[np.argmax(full.mask.sum(axis=1))].tolist()
    stop = decode(row[:3])[len(decode(row[:1])) :]
    drawn = case.generate(engine, attrs.evolve(RANDOM, stop=("never in a text", stop)))
    for number, (tokens, mask) in enumerate(zip(full.tokens, full.mask, strict=True)):
        length = int(mask.sum())
        end = next((n for n in range(1, length + 1) if stop in decode(tokens[:n].tolist())), None)
        assert int(drawn.mask[number].sum()) == (end or length), f"row {number}, stop string {stop!r}"
        assert drawn.finish[number] == ("stop" if end else full.finish[number])
        np.testing.assert_array_equal(drawn.tokens[number, : end or length], tokens[: end or length])
    assert "stop" in drawn.finish


def check_sync(case: EngineCase) -> None:
    """New weights are used from the next call on, and every completion says which version it was drawn with.

    A prefix cache that outlives the weights is the usual cause where only long prompts are wrong.
    """
    engine = case.open()
    before = case.generate(engine, RANDOM)
    assert set(before.versions) == {0}
    engine.sync(case.other, version=7)
    after = case.generate(engine, RANDOM)
    assert set(before.versions) == {0}, "completions drawn before a sync are those of the old version"
    assert set(after.versions) == {7}
    assert np.any(after.tokens != before.tokens)
    _assert_reported(case, after, RANDOM, case.other)
    engine.sync(case.weights, version=8)
    assert_same(case, case.generate(engine, RANDOM), before)


def check_failing_prompt(case: EngineCase) -> None:
    """A prompt that cannot be completed, here because of an id outside the vocabulary, costs the others nothing."""
    import warnings

    engine, (tokens, mask), keys = case.open(), case.prompts(), make_keys()
    whole = case.generate(engine, RANDOM)
    tokens = tokens.copy()
    tokens[1, -1] = case.tokenizer.vocab_size + 1000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = engine.generate(tokens, mask, keys, RANDOM)
    failed = np.repeat(np.arange(PROMPTS) == 1, SAMPLES)
    np.testing.assert_array_equal(drawn.finish == "error", failed)
    assert not drawn.mask[failed].any()
    assert not drawn.logps[failed].any()
    if case.claims.get("batch_invariant"):
        np.testing.assert_array_equal(drawn.tokens[~failed], whole.tokens[~failed])
    assert (case.generate(engine, RANDOM).finish != "error").all(), "the engine does not recover"


def check_close(case: EngineCase) -> None:
    """Closing twice does nothing the second time; a closed engine says so."""
    engine = case.open()
    engine.close()
    engine.close()
    for use in (lambda: case.generate(engine, RANDOM), lambda: engine.sync(case.weights, version=1)):
        assert "closed" in _refusal(use), "the message does not say that the engine is closed"


def check_prompts_are_padded_on_the_left(case: EngineCase) -> None:
    """Prompts that end in padding are refused, not completed after it."""
    tokens, mask = case.prompts()
    message = _refusal(lambda: case.open().generate(tokens, mask[:, ::-1], make_keys(), RANDOM))
    assert "left" in message, f"the message does not say what to do: {message}"


def _refusal(use: Callable[[], Any]) -> str:
    """Return the message with which a call is refused."""
    try:
        use()
    except DovetailError as error:
        return str(error)
    raise AssertionError("what cannot be done is not refused")


CHECKS: Final = tuple(value for name, value in sorted(globals().items()) if name.startswith("check_"))
"""All checks; each is called with an `EngineCase`."""

"""The checks of rollout engines; each takes an `EngineCase` and raises `AssertionError` with the figures seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, cast

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dovetail.config.settings import Sampling
from dovetail.errors import CompletionsFailed, DovetailError
from dovetail.protocols import Completions, Traits, Weights
from dovetail_kit.rollout.case import MAX_TOKENS, PROMPTS, SAMPLES, EngineCase, make_keys
from dovetail_kit.rollout.expected import assert_of_their_versions, expected_logps

RANDOM: Final = Sampling(temperature=0.8, max_tokens=MAX_TOKENS)
GREEDY: Final = Sampling(temperature=0.0, max_tokens=MAX_TOKENS)
CUTS: Final = (
    Sampling(temperature=0.8, top_k=4, max_tokens=MAX_TOKENS),
    Sampling(temperature=1.2, top_p=0.8, max_tokens=MAX_TOKENS),
    Sampling(temperature=1.0, top_k=4, top_p=0.9, min_p=0.1, max_tokens=MAX_TOKENS),
)


def assert_same(case: EngineCase, here: Completions, there: Completions, rows: Any = slice(None)) -> None:
    """Compare some rows of `here` with all of `there`."""
    for name in ("tokens", "mask", "finish"):
        np.testing.assert_array_equal(getattr(here, name)[rows], getattr(there, name), err_msg=name)
    np.testing.assert_allclose(here.logps[rows], there.logps, atol=case.tolerance, err_msg="logps")


def _assert_reported(
    case: EngineCase, completions: Completions, sampling: Sampling, weights: Weights, prompts: Any = None
) -> None:
    expected = expected_logps(case.logits(completions, weights, prompts), completions.tokens, sampling)
    np.testing.assert_allclose(
        completions.logps,
        np.where(completions.mask, expected, 0.0),
        atol=case.tolerance,
        err_msg=f"reported log-probabilities against those of the model, {sampling}",
    )


def _assert_of_version(completions: Completions, version: int) -> None:
    versions = set(completions.versions.flat)
    assert versions == {version}, f"completions are said to be of the versions {versions}, not of {version} alone"


def check_shapes_and_types(case: EngineCase) -> None:
    """Arrays are numpy arrays with one row per completion; `logps` is float32.

    What has another shape fails in the middle of a step, or is broadcast to something else.
    """
    drawn = case.generate(case.open(), RANDOM)
    rows = PROMPTS * SAMPLES
    assert drawn.support is None, "`support` is not None, and nobody has asked for it"
    told = {name: array for name, array in attrs.asdict(drawn, recurse=False).items() if array is not None}
    other = {name: type(array).__name__ for name, array in told.items() if not isinstance(array, np.ndarray)}
    assert not other, f"not numpy arrays: {other}"
    expected = dict.fromkeys(("tokens", "mask", "logps", "versions"), (rows, MAX_TOKENS)) | {"finish": (rows,)}
    shapes = {name: told[name].shape for name in expected}
    assert shapes == expected, f"shapes of {shapes} instead of {expected}"
    kinds = {name: told[name].dtype.kind for name in ("tokens", "mask", "versions")}
    assert kinds == {"tokens": "i", "mask": "b", "versions": "i"}, f"the kinds of types are {kinds}, not i, b and i"
    assert drawn.logps.dtype == np.float32, f"logps are in {drawn.logps.dtype}, not in float32"


def check_reported_logps(case: EngineCase) -> None:
    """Reported log-probabilities are the model's at the sampling temperature.

    The usual causes: they are taken at temperature 1, or in the engine's dtype, or the positions of a prompt count its
    padding.
    """
    engine = case.open()
    for sampling in (RANDOM, attrs.evolve(RANDOM, temperature=1.7), GREEDY):
        _assert_reported(case, case.generate(engine, sampling), sampling, case.weights)


def check_reported_logps_of_cuts(case: EngineCase) -> None:
    """Under top-k, top-p and min-p they are over the support, or over the whole vocabulary if that is asked for.

    The trainer compares them with its own; over other ids the ratio is wrong at every token.
    """
    engine = case.open()
    for sampling in CUTS:
        _assert_reported(case, case.generate(engine, sampling), sampling, case.weights)
        if case.claims.get("vocabulary_logps", True):
            whole = attrs.evolve(sampling, logps="vocabulary")
            _assert_reported(case, case.generate(engine, whole), whole, case.weights)


def check_cuts_draw_from_the_support(case: EngineCase) -> None:
    """No token outside the support is ever drawn.

    The trainer would give such a token a probability of zero, and its ratio would be infinite.
    """
    engine = case.open()
    for sampling in CUTS:
        drawn = case.generate(engine, sampling)
        logps = expected_logps(case.logits(drawn, case.weights), drawn.tokens, sampling)
        assert np.isfinite(logps[drawn.mask]).all(), f"{sampling}: tokens outside the support"


def check_the_support_is_kept(case: EngineCase) -> None:
    """Where it is asked for, the ids that a token was drawn among are those that the cuts leave (`keeps_support`).

    The trainer normalises over these ids, and its ratios would be wrong at every token.
    """
    if not case.claims.get("keeps_support"):
        return
    engine: Any = case.open()
    for sampling in (cut for cut in CUTS if cut.top_k is not None):
        drawn = engine.generate(*case.prompts(), make_keys(), sampling, keep_support=True)
        assert drawn.support is not None, "it is asked for"
        shape = (*drawn.tokens.shape, sampling.top_k)
        assert drawn.support.shape == shape, f"the support has shape {drawn.support.shape} instead of {shape}"
        logits = case.logits(drawn, case.weights)
        every = np.arange(logits.shape[-1])
        shape = (*drawn.tokens.shape, len(every))
        left = np.isfinite(expected_logps(logits[:, :, None], np.broadcast_to(every, shape), sampling))
        listed = np.any(drawn.support[..., None] == every, axis=-2)
        np.testing.assert_array_equal(listed[drawn.mask], left[drawn.mask], err_msg=f"{sampling}: the support")
        assert_same(case, drawn, case.generate(engine, sampling))


def check_the_choices_are_kept(case: EngineCase) -> None:
    """Where they are asked for, the choices are those that the model makes on the same tokens (`keeps_choices`).

    The trainer would replay other experts than those that have sampled the token.
    """
    model: Any = nnx.merge(case.graphdef, *case.weights)
    each = Traits.of(model).choices
    if not (case.claims.get("keeps_choices") and each):
        return
    engine: Any = case.open()
    drawn = engine.generate(*case.prompts(), make_keys(), RANDOM, keep_choices=True)
    assert_same(case, drawn, case.generate(engine, RANDOM))
    assert drawn.choices is not None, "they are asked for"
    assert drawn.prompt_choices is not None, "they are asked for"
    prompts, mask = (np.repeat(array, SAMPLES, axis=0) for array in case.prompts())
    tokens, seen = (np.concatenate(pair, axis=1) for pair in ((prompts, drawn.tokens), (mask, drawn.mask)))
    kept = np.concatenate([drawn.prompt_choices, drawn.choices], axis=1)
    shape = (*tokens.shape, each)
    assert kept.shape == shape, f"the choices of prompts and completions have shape {kept.shape} instead of {shape}"
    none = jnp.full(kept.shape, -1, kept.dtype)
    own = np.asarray(jax.jit(lambda tokens, seen: model(tokens, seen, choices=none)[2])(tokens, seen))
    read = seen & np.append(seen[:, 1:], np.zeros((len(seen), 1), bool), axis=1)
    np.testing.assert_array_equal(kept[read], own[read], err_msg="the choices at the tokens that were read")
    after = np.arange(tokens.shape[1]) >= prompts.shape[1]
    assert np.all(kept[after & ~read] == -1), "a choice at a token that was not read, such as the last"


def check_greedy_is_the_argmax(case: EngineCase) -> None:
    """Temperature 0 takes the most likely token at every position, and so does `top_k` 1 at any temperature.

    Evaluations are greedy: they would measure something else than the policy's best.
    """
    engine = case.open()
    for sampling in (GREEDY, attrs.evolve(RANDOM, top_k=1)):
        drawn = case.generate(engine, sampling)
        logits = case.logits(drawn, case.weights)
        chosen = np.take_along_axis(logits, drawn.tokens[..., None], axis=-1)[..., 0]
        np.testing.assert_allclose(chosen[drawn.mask], logits.max(axis=-1)[drawn.mask], atol=case.tolerance)


def check_same_keys_same_completions(case: EngineCase) -> None:
    """Keys decide: the same keys give the same completions, again and in another engine; other keys give others.

    A resumed run would go on with other completions than one that was never stopped.
    """
    engine = case.open()
    first = case.generate(engine, RANDOM)
    assert_same(case, first, case.generate(engine, RANDOM))
    assert_same(case, first, case.generate(case.open(), RANDOM))
    other = case.generate(engine, RANDOM, make_keys(seed=1))
    assert np.mean(np.any(other.tokens != first.tokens, axis=1)) > 0.5, "other keys give the same completions"


def check_samples_of_a_prompt_differ(case: EngineCase) -> None:
    """The completions of one prompt are samples, not copies; the usual cause is one seed for all of them.

    A group of copies has equal scores, and so no advantages.
    """
    drawn = case.generate(case.open(), RANDOM)
    for group in drawn.tokens.reshape(PROMPTS, SAMPLES, -1):
        assert len({tuple(row) for row in group}) > 1, "all completions of a prompt are equal"


def check_batch_does_not_matter(case: EngineCase) -> None:
    """A completion depends only on its prompt and key, not on the batch, its order or padding (`batch_invariant`).

    A resumed run, and an evaluation, batch the same prompts otherwise; they would get other completions.
    """
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
    """A completion keeps the EOS that ends it, inside the mask; only padding follows.

    Without it, the policy is never taught to end a completion.
    """
    drawn = case.generate(case.open(), RANDOM)
    assert set(drawn.finish) == {"eos", "length"}, "the model of the case must show both endings"
    for tokens, mask, logps, finish in zip(drawn.tokens, drawn.mask, drawn.logps, drawn.finish, strict=True):
        length = int(mask.sum())
        assert mask[:length].all(), "the mask has a hole"
        assert not set(tokens[: length - 1]) & set(case.tokenizer.eos_ids), "sampling went on after an EOS"
        assert (tokens[length - 1] in case.tokenizer.eos_ids) == (finish == "eos"), (
            "the EOS is cut off, or `finish` does not say so"
        )
        after = set(tokens[length:].tolist()) - {case.tokenizer.pad_id}
        assert not after, f"after the end there are the ids {after}, and not only padding"
        assert not logps[length:].any(), "log-probabilities outside the mask"


def check_length_limit(case: EngineCase) -> None:
    """`max_tokens` cuts completions short without changing them, and `truncated` tells which.

    A completion that was cut off, and is not marked, is scored as if it had ended like this.
    """
    engine = case.open()
    full = case.generate(engine, RANDOM)
    for limit in (1, 3):
        short = case.generate(engine, attrs.evolve(RANDOM, max_tokens=limit))
        width = short.tokens.shape[1]
        assert width == limit, f"with max_tokens = {limit} completions have {width} columns"
        np.testing.assert_array_equal(short.truncated, full.mask.sum(axis=1) + full.truncated > limit)
        if case.claims.get("batch_invariant"):
            np.testing.assert_array_equal(short.tokens, full.tokens[:, :limit])


def check_stop_strings(case: EngineCase) -> None:
    """A completion ends with the token that completes a stop string, keeps that token, and its `finish` is 'stop'.

    A completion that goes on past its stop string is scored for what should not be there.
    """
    engine, decode = case.open(), case.tokenizer.decode
    full = case.generate(engine, RANDOM)
    row = full.tokens[np.argmax(full.mask.sum(axis=1))].tolist()
    stop = decode(row[:3])[len(decode(row[:1])) :]
    drawn = case.generate(engine, attrs.evolve(RANDOM, stop=("never in a text", stop)))
    for number, (tokens, mask) in enumerate(zip(full.tokens, full.mask, strict=True)):
        length = int(mask.sum())
        end = next((n for n in range(1, length + 1) if stop in decode(tokens[:n].tolist())), None)
        assert int(drawn.mask[number].sum()) == (end or length), f"row {number}, stop string {stop!r}"
        finish, meant = drawn.finish[number], "stop" if end else full.finish[number]
        assert finish == meant, f"row {number}, stop string {stop!r}: its `finish` is {finish!r} instead of {meant!r}"
        np.testing.assert_array_equal(drawn.tokens[number, : end or length], tokens[: end or length])
    assert "stop" in drawn.finish, f"no completion ends with the stop string {stop!r}"


def check_sync(case: EngineCase) -> None:
    """New weights are used from the next call on, and every completion names the version it was drawn with.

    A step that learns from completions of other weights than it believes corrects for the wrong ratio, or for none.
    """
    engine = case.open()
    before = case.generate(engine, RANDOM)
    _assert_of_version(before, 0)
    engine.sync(case.other, version=7)
    after = case.generate(engine, RANDOM)
    assert set(before.versions.flat) == {0}, "a sync relabels completions that were drawn before it"
    _assert_of_version(after, 7)
    assert np.any(after.tokens != before.tokens), "other weights give the same completions"
    _assert_reported(case, after, RANDOM, case.other)
    engine.sync(case.weights, version=8)
    assert_same(case, case.generate(engine, RANDOM), before)


def check_long_prompts_after_a_sync(case: EngineCase) -> None:
    """A prompt of 200 tokens is completed under each new weights as if nobody had completed it before.

    Prefix caches keep whole blocks of tokens, which no prompt of the other checks fills; the usual cause is one that
    outlives the weights. An engine that has no room for such a prompt, and fails it, is not checked.
    """
    engine, prompt, keys = case.open(), case.long_prompt(), make_keys(0, 1, SAMPLES)
    try:
        before = engine.generate(*prompt, keys, RANDOM)
    except CompletionsFailed:
        return
    _assert_reported(case, before, RANDOM, case.weights, prompt)
    for version, weights in ((7, case.other), (8, case.weights)):
        engine.sync(weights, version=version)
        drawn = engine.generate(*prompt, keys, RANDOM)
        _assert_of_version(drawn, version)
        _assert_reported(case, drawn, RANDOM, weights, prompt)
    assert_same(case, drawn, before)


def check_another_thread(case: EngineCase) -> None:
    """What may sample while the trainer updates (`versions`) does so from another thread, and takes weights there.

    A run with staleness samples beside the update; an engine that is bound to a thread hangs or fails there.
    """
    if not case.claims.get("versions"):
        return
    engine = case.open()
    here = case.generate(engine, RANDOM)
    with ThreadPoolExecutor(1) as other:
        assert_same(case, here, other.submit(case.generate, engine, RANDOM).result())
        other.submit(engine.sync, case.other, 3).result()
        _assert_of_version(other.submit(case.generate, engine, RANDOM).result(), 3)
        other.submit(engine.sync, case.weights, 4).result()
    assert_same(case, case.generate(engine, RANDOM), here)


def check_in_flight(case: EngineCase) -> None:
    """What takes newer weights in the middle of completions (`in_flight`) says of each token which ones sampled it.

    Staleness and corrections go by these versions, and would correct the wrong tokens.
    """
    if not case.claims.get("in_flight"):
        return
    engine, waiting = cast("Any", case.open()), [(case.other, 5)]
    drawn = engine.generate(*case.prompts(), make_keys(), RANDOM, newer=lambda: waiting.pop() if waiting else None)
    assert not waiting, "newer weights were not asked for"
    versions = set(drawn.versions[drawn.mask].tolist())
    assert versions <= {0, 5}, f"tokens are said to be of the versions {versions}, and there are 0 and 5"
    assert np.all(np.diff(np.where(drawn.mask, drawn.versions, 5), axis=1) >= 0), "older weights after newer ones"
    assert_of_their_versions(case, drawn, drawn, RANDOM)
    _assert_of_version(case.generate(engine, RANDOM), 5)


def check_failing_prompt(case: EngineCase) -> None:
    """A prompt that cannot be completed, here because of an id outside the vocabulary, does not harm the others.

    A single faulty example would otherwise end a run that has cost days.
    """
    engine, (tokens, mask), keys = case.open(), case.prompts(), make_keys()
    whole = case.generate(engine, RANDOM)
    tokens = tokens.copy()
    tokens[1, -1] = case.tokenizer.vocab_size + 1000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = engine.generate(tokens, mask, keys, RANDOM)
    failed = np.repeat(np.arange(PROMPTS) == 1, SAMPLES)
    np.testing.assert_array_equal(drawn.finish == "error", failed)
    assert not drawn.mask[failed].any(), "the mask of a completion that failed is not empty"
    assert not drawn.logps[failed].any(), "a completion that failed has log-probabilities"
    if case.claims.get("batch_invariant"):
        np.testing.assert_array_equal(drawn.tokens[~failed], whole.tokens[~failed])
    assert (case.generate(engine, RANDOM).finish != "error").all(), "the engine does not recover"


def check_close(case: EngineCase) -> None:
    """Closing a second time does nothing; a closed engine refuses to be used, and says why.

    Runs close an engine both on success and on the way out of an error.
    """
    engine = case.open()
    engine.close()
    engine.close()
    for use in (lambda: case.generate(engine, RANDOM), lambda: engine.sync(case.weights, version=1)):
        assert "closed" in _refusal(use), "the message does not say that the engine is closed"


def check_prompts_are_padded_on_the_left(case: EngineCase) -> None:
    """Prompts with padding on the right are refused, not continued after the padding.

    A model would continue the padding, and its completions look like those of a bad policy.
    """
    tokens, mask = case.prompts()
    message = _refusal(lambda: case.open().generate(tokens, mask[:, ::-1], make_keys(), RANDOM))
    assert "left" in message, f"the message does not say what to do: {message}"


def _refusal(use: Callable[[], Any]) -> str:
    """Return the message with which a call is refused."""
    try:
        use()
    except DovetailError as error:
        return str(error)
    raise AssertionError("a call that cannot be carried out is not refused")


CHECKS: Final = tuple(value for name, value in sorted(globals().items()) if name.startswith("check_"))
"""All checks of this module; `dovetail_kit.rollout.CHECKS` are all there are."""

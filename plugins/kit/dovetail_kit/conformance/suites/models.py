"""Claims about models, adapters and rollout engines."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dovetail.errors import ConfigError, DovetailError
from dovetail.protocols import Traits
from dovetail.registry import current
from dovetail_kit import rollout
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import same
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.hyperparameters import numbers_of, others

VOCABULARY, ROWS, LENGTH = 13, 4, 8
TINY = {"width": 16, "layers": 2, "heads": 2, "kv_heads": 1, "ffn": 24, "init_std": 0.4}
"""Sizes of the built-in architecture, where a model is needed to check something else."""
WITHIN = 2e-4
ALPHA = "alpha"


class _Model:
    """A model as pure functions of arrays, compiled once for each shape."""

    def __init__(self, model: nnx.Module) -> None:
        graphdef, weights = nnx.split(model)

        @jax.jit
        def whole(tokens: Any, mask: Any) -> Any:
            merged: Any = nnx.merge(graphdef, weights)
            hidden, _ = merged(tokens, mask)
            return hidden, merged.logits(hidden)

        @jax.jit
        def cached(tokens: Any, mask: Any) -> Any:
            merged: Any = nnx.merge(graphdef, weights)
            cache, parts = merged.init_cache(len(tokens), LENGTH), []
            for begin, end in ((0, 5), (5, 7), (7, LENGTH)):
                hidden, cache = merged(tokens[:, begin:end], mask[:, begin:end], cache)
                parts.append(hidden)
            return jnp.concatenate(parts, axis=1)

        @jax.jit
        def prefixed(tokens: Any, mask: Any) -> Any:
            merged: Any = nnx.merge(graphdef, weights)
            _, prefix = merged(tokens[::2, :5], mask[::2, :5], merged.init_cache(ROWS // 2, 5))
            return merged(tokens[:, 5:], mask[:, 5:], prefix=prefix)[0]

        @jax.jit
        def packed(tokens: Any, mask: Any) -> Any:
            merged: Any = nnx.merge(graphdef, weights)
            _, prefix = merged(tokens[::2, :5], mask[::2, :5], merged.init_cache(ROWS // 2, 5))
            ends, texts = tokens[:, 5:].reshape(ROWS // 2, -1), jnp.repeat(jnp.arange(2), LENGTH - 5)
            texts = jnp.broadcast_to(texts, ends.shape)
            hidden, _ = merged(ends, jnp.ones_like(ends, dtype=bool), prefix=prefix, texts=texts)
            return hidden.reshape(ROWS, LENGTH - 5, -1)

        self.whole, self.cached, self.prefixed = whole, cached, prefixed
        self.packed = packed if Traits.of(model).packs else None


def model_of(subject: Subject) -> _Model:
    """Return the model of a subject, which is made once."""
    return subject.once("model", lambda: _Model(make_model(subject)))


def make_model(subject: Subject, seed: int = 0) -> Any:
    """Return a new model of a subject; inapplicable if it cannot be made here."""
    try:
        return subject.bind().make(VOCABULARY, rngs=nnx.Rngs(seed), place=lambda axes, shape: None)
    except (DovetailError, OSError) as error:
        raise Inapplicable(f"it cannot be made here: {error}") from error


def parameters_of(model: Any) -> dict[str, Any]:
    """Return the parameters of a model, or what `abstract` says of them, by their paths."""
    state = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(state)}


def tiny_model(vocab_size: int, seed: int = 0) -> Any:
    """Return a model of the built-in architecture."""
    maker: Any = current().get("model", "decoder").bind(**TINY)
    return maker.make(vocab_size, rngs=nnx.Rngs(seed), place=lambda axes, shape: None)


def token_batch() -> tuple[np.ndarray, np.ndarray]:
    """Return two prompts of five tokens, the second padded on the left, twice each, with different three-token ends."""
    rng = np.random.default_rng(0)
    prompts = np.repeat(rng.integers(0, VOCABULARY, (ROWS // 2, 5)), 2, axis=0)
    tokens = np.concatenate([prompts, rng.integers(0, VOCABULARY, (ROWS, 3))], axis=1).astype(np.int32)
    mask = np.arange(LENGTH) >= np.array([0, 0, 2, 2])[:, None]
    return tokens, mask


@check(
    "model",
    slow=True,
    fix="Project to vocab_size logits in float32, and make `width` the last axis of the hidden states.",
)
def logits(subject: Subject) -> None:
    """Hidden states have the model's width, and logits are finite float32 numbers, one per id of the vocabulary.

    The trainer computes losses and log-probabilities from them, and trusts both their shape and their precision.
    """
    tokens, mask = token_batch()
    hidden, found = model_of(subject).whole(tokens, mask)
    width = make_model(subject).width
    if hidden.shape != (ROWS, LENGTH, width):
        raise Failed(f"hidden states have shape {list(hidden.shape)}, not {[ROWS, LENGTH, width]}")
    if found.shape != (ROWS, LENGTH, VOCABULARY) or found.dtype != jnp.float32:
        raise Failed(f"logits are {found.dtype}{list(found.shape)}, not float32{[ROWS, LENGTH, VOCABULARY]}")
    if not np.isfinite(np.asarray(found)[mask]).all():
        raise Failed("some logits are not finite")


@check("model", slow=True, fix="Mask attention to later positions, and keep rows apart.")
def causal(subject: Subject) -> None:
    """A token affects neither earlier positions nor other rows.

    A token that sees what follows has a probability in training that no sampler can give it.
    """
    tokens, mask = token_batch()
    model = model_of(subject)
    before, _ = model.whole(tokens, mask)
    changed = tokens.copy()
    changed[1, 6] = (changed[1, 6] + 1) % VOCABULARY
    after, _ = model.whole(changed, mask)
    seen = mask.copy()
    seen[1, 6:] = False
    same(after, before, "after another token at [1, 6]: the hidden state", within=WITHIN, where=seen)
    if np.allclose(after[1, 6], before[1, 6]):
        raise Failed("another token at [1, 6] changes nothing there")


@check("model", slow=True, fix="Give new tokens the positions after the cached ones, and let them attend to the cache.")
def cache(subject: Subject) -> None:
    """With a cache, in pieces of 5, 2 and 1 tokens, hidden states are the same as in one pass.

    Otherwise the policy that samples would not be the policy that is trained.
    """
    tokens, mask = token_batch()
    model = model_of(subject)
    whole, _ = model.whole(tokens, mask)
    same(model.cached(tokens, mask), whole, "with a cache: the hidden state", within=WITHIN, where=mask)


@check("model", slow=True, fix="Count positions over the true tokens of a row: jnp.cumsum(mask, axis=-1) - 1.")
def left_padding(subject: Subject) -> None:
    """Padding on the left changes nothing: positions count a row's true tokens.

    Prompts in a batch have different lengths; with shifted positions, a prompt would be completed by another policy.
    """
    tokens, mask = token_batch()
    model = model_of(subject)
    padded, _ = model.whole(tokens, mask)
    moved = np.roll(tokens, -2, axis=1)
    whole, _ = model.whole(moved, np.roll(mask, -2, axis=1) & (np.arange(LENGTH) < LENGTH - 2))
    same(padded[2:, 2:], whole[2:, :-2], "with two positions of padding on the left: the hidden state", within=WITHIN)
    garbage = np.where(mask, tokens, (tokens + 3) % VOCABULARY)
    other, _ = model.whole(garbage, mask)
    same(other, padded, "with other tokens in the padding: the hidden state", within=WITHIN, where=mask)


@check("model", slow=True, fix="Let masked tokens change neither positions, keys nor a state that is carried on.")
def gaps(subject: Subject) -> None:
    """Masked tokens between true ones change nothing, in one pass or with a cache.

    In episodes the turns of a batch have different lengths, so that shorter ones are padded in the middle.
    """
    tokens, mask = token_batch()
    model = model_of(subject)
    gap = np.arange(LENGTH) // 2 == 2  # two columns, of which the first ends a piece and the second begins one
    closed = np.where(gap, LENGTH, np.arange(LENGTH)).argsort(kind="stable")
    whole, _ = model.whole(tokens[:, closed], mask[:, closed] & (np.arange(LENGTH) < LENGTH - 2))
    there = mask & ~gap
    for found, what in ((model.whole(tokens, there)[0], "in one pass"), (model.cached(tokens, there), "with a cache")):
        same(
            np.asarray(found)[:, closed][:, : LENGTH - 2],
            np.asarray(whole)[:, : LENGTH - 2],
            f"with two masked tokens in the middle, {what}: the hidden state",
            within=WITHIN,
            where=mask[:, closed][:, : LENGTH - 2],
        )


@check("model", slow=True, fix="Let row i of the tokens attend to row i // (rows // prefix rows) of the prefix.")
def prefix(subject: Subject) -> None:
    """A prompt that is computed once and continued by several rows gives the same results as whole rows.

    Updates share the prompts of a group like this: their log-probabilities would not be those of sampling.
    """
    tokens, mask = token_batch()
    model = model_of(subject)
    whole, _ = model.whole(tokens, mask)
    same(model.prefixed(tokens, mask), whole[:, 5:], "after a shared prefix: the hidden state", within=WITHIN)


@check("model", slow=True, fix="Give each array of the cache the rows first, and one scalar: the slots in use.")
def cache_by_rows(subject: Subject) -> None:
    """In an empty cache the first axis of each array is the rows, all zeros, and the only scalar is the slots in use.

    Decoding copies the rows of a finished completion and gives their place to another.
    """
    model = make_model(subject)
    small, large = (jax.tree.leaves(model.init_cache(rows, LENGTH)) for rows in (ROWS, 2 * ROWS))
    scalars = [leaf for leaf in small if not np.ndim(leaf)]
    if len(scalars) != 1 or not jnp.issubdtype(jnp.result_type(scalars[0]), jnp.integer):
        raise Failed(f"the cache has {len(scalars)} scalars, not the number of slots in use alone")
    for few, many in zip(small, large, strict=True):
        if np.ndim(few) and many.shape != (2 * few.shape[0], *few.shape[1:]):
            raise Failed(f"for {ROWS} rows an array is {list(few.shape)}, and for {2 * ROWS} rows {list(many.shape)}")
        if np.asarray(few).any():
            raise Failed("an empty cache has numbers other than zero")


@check(
    "model", slow=True, fix="Let tokens see and count the prefix and those of their own text; or do not set `packs`."
)
def packing(subject: Subject) -> None:
    """If the model `packs`, the two ends of a prompt in one row, as two texts, give the results of whole rows.

    Log-probabilities would depend on which texts share a row, which is decided by their lengths.
    """
    tokens, mask = token_batch()
    model = model_of(subject)
    if model.packed is None:
        raise Inapplicable("the model does not declare that it `packs`")
    whole, _ = model.whole(tokens, mask)
    same(model.packed(tokens, mask), whole[:, 5:], "of a text packed with another: the hidden state", within=WITHIN)


@check(
    "adapter",
    slow=True,
    unless="loaded",
    fix="Initialise the update to zero, and make the new parameters nnx.LoRAParam.",
)
def begins_as_the_base(subject: Subject) -> None:
    """An adapter changes nothing before it is trained, and what it adds is of type nnx.LoRAParam.

    Training would begin from a damaged model.
    """
    tokens, mask = token_batch()
    model = tiny_model(VOCABULARY)
    before = np.asarray(model(tokens, mask)[0])
    adapted = subject.bind().apply(model, rngs=nnx.Rngs(1))
    same(adapted(tokens, mask)[0], before, "with the adapter: the hidden state", within=WITHIN, where=mask)
    if not jax.tree.leaves(nnx.state(adapted, nnx.LoRAParam)):
        raise Failed("it adds no parameter of type nnx.LoRAParam, so nothing would be trained")
    for name, value in numbers_of(subject).items():
        other = next(iter(others(subject.component, name, value)), None)
        if other is not None:
            adapted = subject.bind(**{name: other}).apply(tiny_model(VOCABULARY), rngs=nnx.Rngs(1))
            what = f"with the adapter and '{name}' = {other:g}: the hidden state"
            same(adapted(tokens, mask)[0], before, what, within=WITHIN, where=mask)


@check(
    "adapter",
    slow=True,
    when=lambda component: ALPHA in component.params,
    fix="Multiply what is added by alpha / rank, or by alpha / √rank.",
)
def a_larger_alpha_changes_more(subject: Subject) -> None:
    """With the same factors, twice the `alpha` changes the model more.

    Divided by, it makes an adapter the weaker the stronger the config says it is.
    """
    tokens, mask = token_batch()
    before = np.asarray(tiny_model(VOCABULARY)(tokens, mask)[0])
    changes = []
    for factor in (1.0, 2.0):
        alpha = subject.params[ALPHA] * factor
        adapted = subject.bind(**{ALPHA: alpha}).apply(tiny_model(VOCABULARY), rngs=nnx.Rngs(1))
        graphdef, added, rest = nnx.split(adapted, nnx.LoRAParam, ...)
        moved = jax.tree.map(lambda leaf: leaf + jnp.asarray(1e-3, leaf.dtype), added)
        changed = nnx.merge(graphdef, moved, rest)(tokens, mask)[0]
        changes.append(float(np.abs(np.where(mask[..., None], np.asarray(changed) - before, 0)).sum()))
    if not changes[1] > 1.2 * changes[0]:
        raise Failed(
            f"with factors moved by 0.001 the hidden states change by {changes[0]:.6g} with alpha ="
            f" {subject.params[ALPHA]:g}, and by {changes[1]:.6g} with twice that"
        )


@check("adapter", slow=True, fix="Multiply the product of the two factors by the same scale as their output.")
def merges_as_it_computes(subject: Subject) -> None:
    """A matrix with its change merged into it computes what the matrix and the change compute.

    An exported model, and one that is handed to a sampler, is merged: it would be another than the trained one.
    """
    from dovetail_model.layers.linear import Linear

    adapted = subject.bind().apply(tiny_model(VOCABULARY), rngs=nnx.Rngs(1))
    graphdef, added, rest = nnx.split(adapted, nnx.LoRAParam, ...)
    model = nnx.merge(graphdef, jax.tree.map(lambda leaf: leaf + jnp.asarray(0.1, leaf.dtype), added), rest)
    changed = [each for _, each in nnx.iter_modules(model) if isinstance(each, Linear) and each.change is not None]
    if not changed:
        raise Inapplicable("it adds no change to a matrix of the kind that is merged")
    for linear in changed:
        found = linear(jnp.eye(linear.inputs)) - (0 if linear.bias is None else linear.bias[...])
        same(linear.merged(), found, "the matrix with its change merged", within=WITHIN)


def gradient_of_adapter(subject: Subject) -> tuple[Callable[[Any], Any], Any]:
    """Return what gives the gradient by all that an adapter adds to a tiny model, and what it has added."""
    tokens, mask = token_batch()
    adapted = subject.bind().apply(tiny_model(VOCABULARY), rngs=nnx.Rngs(1))
    graphdef, added, rest = nnx.split(adapted, nnx.LoRAParam, ...)

    @jax.jit
    def gradient(added: Any) -> Any:
        def loss(added: Any) -> Any:
            model: Any = nnx.merge(graphdef, added, rest)
            logits = model.logits(model(tokens, mask)[0])
            return jnp.sum(jnp.where(mask[..., None], jnp.sin(logits), 0.0))

        return jax.grad(loss)(added)

    return gradient, added


@check("adapter", slow=True, fix="Initialise one of the two factors at random, and only the other one to zero.")
def can_learn(subject: Subject) -> None:
    """Some of what it adds has a gradient that is not zero: with two factors of zero there is none.

    Such an adapter stays what it is for the whole run, which looks as if there were nothing to learn.
    """
    gradient, added = gradient_of_adapter(subject)
    if not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(gradient(added))):
        raise Failed("the gradient by everything that it adds is zero")


ENGINE_FIXES = {
    "shapes_and_types": "Return what `Completions` says: numpy arrays padded on the right, a row for each completion.",
    "reported_logps": "Divide the logits by the temperature before log_softmax, and take the sampled token's.",
    "reported_logps_of_cuts": "Set logits outside the cut to -inf before log_softmax, unless `logps` is 'vocabulary'.",
    "cuts_draw_from_the_support": "Apply top-k, then top-p and min-p to the logits that are drawn from.",
    "the_choices_are_kept": "Return what the model chose at each token that it read, and -1 elsewhere; drop what an"
    " ended completion's slot goes on to choose.",
    "the_support_is_kept": "Return the ids that the cuts leave, each token's own among them, filled up with -1.",
    "greedy_is_the_argmax": "At temperature 0 take the argmax, and divide by nothing.",
    "same_keys_same_completions": "Draw token t of a completion from fold_in(its key, t), and from nothing else.",
    "samples_of_a_prompt_differ": "Give each completion its own key, not each prompt or call.",
    "batch_does_not_matter": "Draw by the key of the row, and keep rows apart; or do not declare batch_invariant.",
    "eos_is_kept": "Count the end-of-sequence token in; clear the mask only behind it.",
    "length_limit": "Stop after max_tokens tokens, and give 'length' as the `finish` of what has not ended.",
    "stop_strings": "Look for stop strings in the decoded text, and keep the token that completes one.",
    "in_flight": "Cut what is being sampled, load the weights, go on with the tokens so far as part of the prompt, and"
    " write each part's version into `versions`; or do not declare in_flight.",
    "another_thread": "Keep nothing by thread, and lock what the trainer shares; or do not declare versions.",
    "sync": "Replace the weights before the next call, and write the version into `versions`.",
    "long_prompts_after_a_sync": "Empty the prefix cache after every sync, or key its blocks by the version too.",
    "failing_prompt": "Catch what a single prompt raises; give its rows an empty mask and 'error' as their `finish`.",
    "close": "Free what the engine holds once, and raise RunError when it is asked again.",
    "prompts_are_padded_on_the_left": "Refuse a prompt_mask that is true before it is false.",
    "logps_of_episodes": "Read all of an observation, at the positions after the turn, before drawing the next token.",
    "turns_equal_rounds": "Draw a turn as `generate` does after the episode so far, with its key, limits and stops.",
    "turns_keep_their_weights": "In `Turns.next`, raise RunError if the weights are not those of the first turns.",
    "failing_observation": "Give the row of an observation that cannot be read 'error', and draw the others.",
    "apart_equals_rounds": "In `Turns.play`, draw a turn as `next` would: with the key that `then` returned for it,"
    " after all ids of its own episode, within its own room. Keep what belongs to an episode by its row.",
    "no_episode_waits": "In `Turns.play`, give each episode a thread of its own for `then`, and ask for its next turn"
    " from there; an engine that cannot has no `play`.",
    "what_follows_a_turn_raises": "In `Turns.play`, raise what `then` raises: call it outside of what catches the"
    " engine's own errors.",
    "failing_observation_apart": "In `Turns.play`, call `then` with a turn that failed too, with 'error' as its"
    " `finish`; at the end raise CompletionsFailed if the last turns of all failed.",
    "newer_weights_apart": "In `Turns.play`, write into `versions` which weights sampled each token, in later turns"
    " too.",
}
"""How to mend what a check of engines finds; `dovetail_kit.rollout` runs it on a tiny model of your own."""


def _engine_case(subject: Subject) -> rollout.EngineCase:
    def make() -> rollout.EngineCase:
        numbers: Any = rollout.Numbers()
        first, second = (tiny_model(numbers.vocab_size, seed) for seed in (0, 1))
        case = rollout.EngineCase.of(subject.bind(), first, second, numbers)
        try:
            case.open().close()
        except ConfigError as error:
            raise Inapplicable(str(error)) from error
        return case

    return subject.once("case", make)


def _shortened(text: str, limit: int = 300) -> str:
    """Return what was seen without the arrays that follow."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def _add_engine_check(function: Any) -> None:
    def engine_check(subject: Subject) -> None:
        try:
            function(_engine_case(subject))
        except AssertionError as error:
            raise Failed(_shortened(" ".join(str(error).split()))) from None

    engine_check.__doc__ = inspect.getdoc(function)
    name = function.__name__.removeprefix("check_")
    check("rollout", name=name, slow=True, fix=ENGINE_FIXES[name])(engine_check)


for _function in rollout.CHECKS:
    _add_engine_check(_function)

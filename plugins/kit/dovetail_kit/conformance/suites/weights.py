"""Claims about a model's weights: how they begin, that all of them learn, and that `abstract` tells them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import finite, same
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.models import (
    LENGTH,
    ROWS,
    VOCABULARY,
    WITHIN,
    gradient_of_adapter,
    make_model,
    model_of,
    parameters_of,
    token_batch,
)

PROMPT = 5
STACK = 4
"""Vectors that a parameter may consist of, each of which learns."""
STEP, STEPS = 0.01, 4
"""The length of a step along the gradients, and at how many points they are taken."""
LENGTHS: Final = (0.02, 0.01)
"""How far differences are taken, as a share of the size of a parameter: twice, to see that the loss is smooth there."""
SMOOTH, ROUGH, FLOOR, SMALL = 0.02, 0.03, 0.01, 0.1


@check(
    "model",
    slow=True,
    unless="loaded",
    fix="Draw every parameter with a key of its own: rngs.params() gives another at each call.",
)
def begins_at_random(subject: Subject) -> None:
    """The seed determines the weights: different seeds give different ones, and no two layers start with the same.

    Layers that begin alike get the same gradients and stay alike, and runs with other seeds would be one run.
    """
    first, again, other = (parameters_of(make_model(subject, seed)) for seed in (0, 0, 1))
    for path, leaf in first.items():
        same(again[path], leaf, f"made again from the same seed: {path}", within=0.0)
    drawn = {path: np.asarray(leaf, np.float32) for path, leaf in first.items() if np.ptp(np.asarray(leaf)) > 0}
    if all(np.array_equal(np.asarray(other[path], np.float32), leaf) for path, leaf in drawn.items()):
        raise Failed("another seed gives the same weights")
    # what no seed changes is chosen, as decays that are spread over a range are, and may be the same in each layer
    drawn = {
        path: leaf for path, leaf in drawn.items() if not np.array_equal(np.asarray(other[path], np.float32), leaf)
    }
    for path, leaf in drawn.items():
        twins = [name for name, found in drawn.items() if name < path and np.array_equal(found, leaf)]
        if twins:
            raise Failed(f"{twins[0]} and {path} begin with the same numbers")


@check("model", slow=True, fix="Build abstract() from the same code as make(): nnx.eval_shape of it, say.")
def abstract_is_what_is_made(subject: Subject) -> None:
    """`abstract` has the parameters that `make` makes, in the same shapes and types.

    It is used to plan memory, to restore checkpoints and to shard weights.
    """
    made = {path: (leaf.shape, leaf.dtype.name) for path, leaf in parameters_of(make_model(subject)).items()}
    told = parameters_of(subject.bind().abstract(VOCABULARY))
    said = {path: (leaf.shape, np.dtype(leaf.dtype).name) for path, leaf in told.items()}
    wrong = sorted(made.items() ^ said.items(), key=str)
    if wrong:
        path = wrong[0][0]
        raise Failed(f"{path} is {made.get(path, 'not there')}, and abstract() says {said.get(path, 'nothing')}")


def _loss_of(model: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return the loss of a model on known texts, as a function of its parameters, and these."""
    tokens, mask = token_batch()
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params: Any) -> Any:
        merged: Any = nnx.merge(graphdef, params, rest)
        hidden, _ = merged(tokens[:, :-1], mask[:, :-1])
        logps = jax.nn.log_softmax(merged.logits(hidden).astype(jnp.float32))
        found = jnp.take_along_axis(logps, jnp.asarray(tokens)[:, 1:, None], axis=-1)[..., 0]
        return -jnp.sum(jnp.where(mask[:, :-1], found, 0.0))

    return loss, params


@check("model", slow=True, fix="Look for jax.lax.stop_gradient, and for a parameter that is read nowhere.")
def every_parameter_learns(subject: Subject) -> None:
    """Every parameter has a finite gradient that is not zero, at the start or after up to three steps along the
    others', and so has each vector of a stack of a few, such as the scales of a layer's norms.

    With a parameter frozen by mistake, training looks normal, but is worse. One that feeds only a projection which
    begins at zero learns from the second step on; and from the third, if the logits begin at zero, too.
    """
    made = make_model(subject)
    chooses = bool(getattr(made, "choices", 0))  # such as experts, which need not all be chosen
    loss, params = _loss_of(made)
    for name, leaves in _gradients_of_steps(jax.jit(jax.grad(loss)), params).items():
        finite(leaves[0], f"the gradient by {name}")
        if not leaves.any():
            raise Failed(f"the gradient by {name} is zero everywhere")
        for row in range(leaves.shape[1] if leaves.ndim == 3 and leaves.shape[1] <= STACK and not chooses else 0):
            if not leaves[:, row].any():
                raise Failed(f"the gradient by {name}[{row}] is zero everywhere")


def _gradients_of_steps(gradient: Callable[[Any], Any], params: Any) -> dict[str, np.ndarray]:
    """Return the gradients of each array by its path, in float32, at the start and after each of a few steps."""
    found: dict[str, list[np.ndarray]] = {}
    for _ in range(STEPS):
        slopes = gradient(params)
        params = jax.tree.map(lambda value, slope: value - (STEP * slope).astype(value.dtype), params, slopes)
        for path, leaf in jax.tree.leaves_with_path(nnx.to_pure_dict(slopes)):
            found.setdefault(jax.tree_util.keystr(path), []).append(np.asarray(leaf, np.float32))
    return {name: np.stack(leaves) for name, leaves in found.items()}


@check("model", slow=True, fix="Let gradients through: look for jax.lax.stop_gradient in what outputs depend on.")
def gradients_are_slopes(subject: Subject) -> None:
    """Along a direction of each parameter, the gradient of a loss is its slope, as differences show it.

    Where what a state holds, or a gate, lets no gradient through, training goes another way than the loss.
    """
    loss, params = _loss_of(make_model(subject))
    evaluate, gradients = jax.jit(loss), jax.tree.leaves(jax.jit(jax.grad(loss))(params))
    leaves, form = jax.tree.flatten(params)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(nnx.to_pure_dict(params))]
    rng = np.random.default_rng(0)
    for number, (name, leaf, gradient) in enumerate(zip(names, leaves, gradients, strict=True)):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            continue
        # `same_slopes` moves all arrays by one length, which is much too far for weights of a hundredth
        size = float(jnp.sqrt(jnp.mean(jnp.square(leaf.astype(jnp.float32))))) or SMALL
        way = (size * rng.standard_normal(leaf.shape)).astype(np.float32)

        def moved(length: float, number: int = number, leaf: Any = leaf, way: Any = way) -> float:
            changed = [*leaves[:number], (leaf + length * way).astype(leaf.dtype), *leaves[number + 1 :]]
            return float(evaluate(jax.tree.unflatten(form, changed)))

        far, near = ((moved(length) - moved(-length)) / (2 * length) for length in LENGTHS)
        if abs(far - near) > SMOOTH * abs(near) + FLOOR:
            continue  # there is a corner, or a choice
        slope = float(jnp.sum(gradient.astype(jnp.float32) * way))
        if abs(slope - near) > ROUGH * max(abs(slope), abs(near)) + FLOOR:
            raise Failed(
                f"along a direction of {name} the loss rises by {near:.4g}, and by its gradient by {slope:.4g}"
            )


@check(
    "model", slow=True, fix="Let cached tokens come after the prefix: positions and attention count all three parts."
)
def prefix_and_cache(subject: Subject) -> None:
    """A shared prompt that is continued in cached pieces gives the same results as whole rows.

    Completions are sampled like this: the prompt once, then token by token.
    """
    tokens, mask = token_batch()
    model = make_model(subject)
    graphdef, weights = nnx.split(model)

    @jax.jit
    def sampled(tokens: Any, mask: Any) -> Any:
        merged: Any = nnx.merge(graphdef, weights)
        _, prefix = merged(tokens[::2, :PROMPT], mask[::2, :PROMPT], merged.init_cache(ROWS // 2, PROMPT))
        cache, parts = merged.init_cache(ROWS, LENGTH - PROMPT), []
        for begin, end in pairwise((PROMPT, PROMPT + 1, LENGTH)):
            hidden, cache = merged(tokens[:, begin:end], mask[:, begin:end], cache, prefix=prefix)
            parts.append(hidden)
        return jnp.concatenate(parts, axis=1)

    whole, _ = model_of(subject).whole(tokens, mask)
    same(sampled(tokens, mask), whole[:, PROMPT:], "after a shared prefix, in pieces: the hidden state", within=WITHIN)


@check(
    "model", slow=True, fix="Project in float32: hidden.astype(jnp.float32), and matmuls with preferred_element_type."
)
def logits_in_full_precision(subject: Subject) -> None:
    """Logits of parameters in float32 are not rounded to bfloat16.

    Three digits of a logit of 20 are an error of 0.06 in its logarithm, more than a clip range sees.
    """
    model = make_model(subject)
    if any(leaf.dtype != jnp.float32 for leaf in parameters_of(model).values()):
        raise Inapplicable("its parameters are not in float32")
    hidden = jax.random.normal(jax.random.key(0), (4, model.width))
    logits = np.asarray(model.logits(hidden))
    if not logits.any():
        raise Inapplicable("its logits begin at zero, which any type holds")
    if np.array_equal(logits, logits.astype(jnp.bfloat16).astype(np.float32)):
        raise Failed("every logit is a number of bfloat16")


@check(
    "model", slow=True, fix="Let gradients flow through the prefix: no jax.lax.stop_gradient on its keys and values."
)
def learns_through_the_prefix(subject: Subject) -> None:
    """The gradient of what follows a shared prefix is that of whole rows.

    Updates compute a prompt once for all of its completions; what its part of the weights learns must not be lost.
    """
    tokens, mask = token_batch()
    graphdef, params, rest = nnx.split(make_model(subject), nnx.Param, ...)

    def gradient(shared: bool) -> Any:
        def loss(params: Any) -> Any:
            model: Any = nnx.merge(graphdef, params, rest)
            if shared:
                _, prefix = model(tokens[::2, :PROMPT], mask[::2, :PROMPT], model.init_cache(ROWS // 2, PROMPT))
                hidden, _ = model(tokens[:, PROMPT:], mask[:, PROMPT:], prefix=prefix)
            else:
                hidden = model(tokens, mask)[0][:, PROMPT:]
            return jnp.sum(jnp.where(mask[:, PROMPT:, None], jnp.sin(hidden), 0.0))

        return nnx.to_pure_dict(jax.jit(jax.grad(loss))(params))

    whole = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(gradient(shared=False))}
    for path, leaf in jax.tree.leaves_with_path(gradient(shared=True)):
        name = jax.tree_util.keystr(path)
        same(leaf, whole[name], f"after a shared prefix: the gradient by {name}", within=1e-3)


@check("adapter", slow=True, unless="loaded", fix="Read every parameter that is added, or add it to fewer layers.")
def all_of_it_learns(subject: Subject) -> None:
    """Everything that it adds has a gradient that is not zero, at first or after up to three steps along the others'.

    What is added and read nowhere costs memory, and an adapter that skips a part of its matrices learns less.
    """
    for name, leaves in _gradients_of_steps(*gradient_of_adapter(subject)).items():
        if not leaves.any():
            raise Failed(f"the gradient by {name} is zero everywhere")

"""Time the alternatives between which code chooses by platform: `python benchmarks/choices.py`.

Figures are milliseconds, the least of several calls: processor time of all cores on CPUs, wall time elsewhere. What is
chosen here is marked with `chosen`; `docs/performance.md` has the table for CPUs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from step import machine

from dovetail_model.attention import views
from dovetail_model.layers.grouped import _in_blocks
from dovetail_model.layers.remat import _widened
from dovetail_model.spec import Layer, Rope, Spec
from dovetail_model.transformer import Transformer
from dovetail_rollout.decoding.cuts import largest
from dovetail_rollout.decoding.draw import draw
from dovetail_rollout.decoding.sampling import gathers

ROWS, VOCABULARY = 32, 151_936
BLOCK = 1024
"""Tokens in a block of the top-k of two levels."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10)
    options = parser.parse_args()
    for what, way, chosen, call, arguments in alternatives():
        figures = {"ms": round(least(jax.jit(call), arguments, options.calls), 2)}
        print(json.dumps({"what": what, "way": way, "chosen": chosen, **figures}), flush=True)
    print(json.dumps(machine()))


def least(call: Callable[..., Any], arguments: tuple[Any, ...], calls: int) -> float:
    """Return the milliseconds of the fastest call after the first."""
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    jax.block_until_ready(call(*arguments))
    found = []
    for _ in range(calls):
        begin = clock()
        jax.block_until_ready(call(*arguments))
        found.append(1e3 * (clock() - begin))
    return min(found)


Way = tuple[str, str, bool, Callable[..., Any], tuple[Any, ...]]


def alternatives() -> Iterator[Way]:
    """Yield what is computed, how, whether it is chosen on this platform, the function, and its arguments."""
    yield from sampler()
    yield from products()
    yield from layers()


def sampler() -> Iterator[Way]:
    """The cut to the k largest weights, and the draw."""
    weights = jnp.exp(2 * jax.random.normal(jax.random.key(0), (ROWS, VOCABULARY)))
    for k in (50, 256, 4096):
        name, gathered = f"top-k {k}", gathers(k, keep_support=False)
        yield name, "lax.top_k", gathered, lambda w, k=k: jax.lax.top_k(w, k), (weights,)
        yield name, "bisection", not gathered, lambda w, k=k: largest(w, k), (weights,)
        if k < BLOCK:
            yield name, "two levels", False, lambda w, k=k: two_levels(w, k), (weights,)
    uniform = jax.random.uniform(jax.random.key(1), (ROWS, 2))
    yield "draw", "cumulative sums of blocks", True, draw, (weights, uniform)
    yield "draw", "Gumbel noise", False, gumbel, (weights, jax.random.key(2))


def two_levels(weights: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """Return the k largest of the k largest of each block of tokens."""
    rows, tokens = weights.shape
    blocks = jnp.pad(weights, ((0, 0), (0, -tokens % BLOCK))).reshape(rows, -1, BLOCK)
    values, inside = jax.lax.top_k(blocks, k)
    ids = inside + BLOCK * jnp.arange(blocks.shape[1])[None, :, None]
    found, places = jax.lax.top_k(values.reshape(rows, -1), k)
    return found, jnp.take_along_axis(ids.reshape(rows, -1), places, axis=-1)


def gumbel(weights: jax.Array, key: jax.Array) -> jax.Array:
    """Draw by the largest of noisy logits (Gumbel 1954)."""
    return jnp.argmax(jnp.log(weights) + jax.random.gumbel(key, weights.shape), axis=-1)


def products() -> Iterator[Way]:
    """Products in bfloat16, and those of the rows of experts with their matrices."""
    is_cpu = jax.default_backend() == "cpu"
    x = jax.random.normal(jax.random.key(3), (1024, 896), jnp.bfloat16)
    kernel = jax.random.normal(jax.random.key(4), (896, 4864), jnp.bfloat16) / 32
    name = "1,024 x 896 x 4,864 in bfloat16, gradient too"
    yield name, "as it is", not is_cpu, gradient(lambda x, w: x @ w), (x, kernel)
    yield name, "widened when used", is_cpu, gradient(_widened), (x, kernel)
    sizes = jnp.full(16, 64, jnp.int32)
    kernels = jax.random.normal(jax.random.key(5), (16, 896, 512), jnp.float32)
    rows = x.astype(jnp.float32)
    name = "1,024 rows of 16 experts, 896 x 512, gradient too"
    yield name, "lax.ragged_dot", not is_cpu, gradient(lambda x, w: jax.lax.ragged_dot(x, w, sizes)), (rows, kernels)
    yield name, "blocks of rows", is_cpu, gradient(lambda x, w: _in_blocks(x, w, sizes)), (rows, kernels)


def gradient(product: Callable[[Any, Any], jax.Array]) -> Callable[[Any, Any], Any]:
    return jax.grad(lambda x, kernel: jnp.sum(jnp.sin(product(x, kernel).astype(jnp.float32))), (0, 1))


def layers() -> Iterator[Way]:
    """Twelve layers in the shape of SmolLM2-135M, 8 rows of 128 tokens, unrolled or scanned; gradient too."""
    layer = Layer(rope=Rope(theta=1e4))
    spec = Spec(
        vocab_size=128,
        tied=True,
        width=576,
        heads=9,
        kv_heads=3,
        head_dim=64,
        ffn=1536,
        layers=(layer,) * 12,
        remat="none",
    )
    model = Transformer(spec, rngs=nnx.Rngs(0))
    (graphdef, first), *others = (nnx.split(block) for block in model.blocks)
    states = [first, *(state for _, state in others)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    x = jax.random.normal(jax.random.key(6), (8 * 128, spec.width))
    view = views(spec.layers, spec.head_dim, jnp.ones((8, 128), bool), None, None, None, how="dense")[layer]

    def block(x: jax.Array, state: Any) -> jax.Array:
        return nnx.merge(graphdef, state)(x, view, None, None)[0]

    def unrolled(states: Any, x: jax.Array) -> jax.Array:
        for state in states:
            x = block(x, state)
        return jnp.sum(x**2)

    def scanned(stacked: Any, x: jax.Array) -> jax.Array:
        return jnp.sum(jax.lax.scan(lambda x, state: (block(x, state), None), x, stacked)[0] ** 2)

    name = "12 layers of 576, 8 x 128 tokens, gradient too"
    yield name, "unrolled", True, jax.grad(unrolled), (states, x)
    yield name, "scanned", False, jax.grad(scanned), (stacked, x)


if __name__ == "__main__":
    main()

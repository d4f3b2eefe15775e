"""Compare whole, sorted and packed completions: `python benchmarks/lengths.py W2 ragged long > lengths.json`.

For each work the reference pass and the update of one GRPO step are compiled in every variant and called in turn; the
figures are the CPU seconds of the fastest of `--calls` calls, those of compiling, the temporary memory of the
compiled functions, and the greatest difference of the gradient from that of whole rows, relative to its greatest entry.

W1      16 prompts of 64 tokens, 8 completions each, all of 64 tokens: nothing to gain
W2      the same, lengths uniform in 4 … 64
ragged  4 prompts of 64 tokens, 8 completions each, lengths lognormal with median 64 and sigma 0.9, at most 512
many    the same with 16 prompts, as many completions as W1
long    4 prompts of 448 tokens, 16 completions each, lengths uniform in 4 … 64
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from step import machine
from workloads import COMMON, LONG, SMALL, VOCAB, register

from dovetail.config import Config, load
from dovetail.devices.mesh import Devices
from dovetail.plan.roles import POLICY, REFERENCE
from dovetail.step.algorithm import Algorithm, assemble
from dovetail.step.buckets import Buckets, fill
from dovetail.step.moment import Moment
from dovetail.step.scoring import Scoring
from dovetail.step.update import Trained, Update, mini_batches
from dovetail.training.models import Models
from dovetail_memory.micro_batch import in_update

RAGGED = ("train.prompts=4", "train.group_size=8", "train.max_prompt_tokens=64", "sampling.max_tokens=512")
WORKS = {
    "W1": (*COMMON, *SMALL),
    "W2": (*COMMON, *SMALL),
    "ragged": (*COMMON, *RAGGED),
    "many": (*COMMON, *RAGGED, "train.prompts=16"),
    "long": (*COMMON, *LONG),
}
SPREADS = {"W1": "full", "ragged": "lognormal", "many": "lognormal"}
"""How the lengths of a work are distributed, if not uniformly."""
GRADIENT = ("train.optimizer=sgd", "train.lr=1.0", "train.max_grad_norm=1e9")
VARIANTS = {
    "whole": (),
    "4 widths": ("train.length_buckets=4",),
    "8 widths": ("train.length_buckets=8",),
    "packed": ("train.packing=True",),
    "packed, 2 widths": ("train.packing=True", "train.length_buckets=2"),
    "packed, 4 widths": ("train.packing=True", "train.length_buckets=4"),
}


def sampled(config: Config, spread: str) -> dict[str, Any]:
    """Return what a rollout and its rewards give, with random tokens; `spread` of lengths: full, uniform, lognormal."""
    rng, train, longest = np.random.default_rng(0), config.train, config.sampling.max_tokens
    rows = train.prompts * train.group_size
    if spread == "full":
        lengths = np.full(rows, longest)
    elif spread == "uniform":
        lengths = rng.integers(4, longest + 1, rows)
    else:
        lengths = np.exp(rng.normal(np.log(64), 0.9, rows))
    mask = np.arange(longest) < np.clip(lengths, 1, longest)[:, None]
    prompts = rng.integers(1, VOCAB, (train.prompts, train.max_prompt_tokens)).astype(np.int32)
    prompts = np.repeat(prompts, train.group_size, axis=0)
    found = {
        "prompt_tokens": prompts,
        "prompt_mask": np.ones_like(prompts, bool),
        "tokens": rng.integers(1, VOCAB, mask.shape).astype(np.int32),
        "mask": mask,
        "group_ids": np.repeat(np.arange(train.prompts, dtype=np.int32), train.group_size),
        "rollout_logps": np.full(mask.shape, -np.log(VOCAB), np.float32),
        "lengths": mask.sum(1, dtype=np.int32),
        "truncated": mask.all(1),
        "advantages": (mask * rng.normal(size=(rows, 1))).astype(np.float32),
    }
    return {name: jnp.asarray(array) for name, array in found.items()}


class Variant:
    """The compiled reference pass and update of a config, and their figures."""

    def __init__(self, config: Config, weights: Any, graphdef: Any, batch: dict[str, Any]) -> None:
        self.algorithm: Algorithm = assemble(config)
        scoring = Scoring(algorithm=self.algorithm, graphdefs={POLICY: graphdef}, roles=(REFERENCE,))
        update = Update(algorithm=self.algorithm, graphdefs={POLICY: graphdef})
        sizes = self.algorithm.sizes
        self.figures: dict[str, Any] = {"rows": rows_of(self.algorithm, batch)}
        hyper = dict(self.algorithm.hyper)
        (one,) = mini_batches(batch, sizes.mini_batch_size, 1, jax.random.key(0), sizes.rows_per_prompt)
        now = Moment(
            step=jnp.int32(0),
            total=jnp.int32(10),
            key=jax.random.key(0),
            coefficients={"train.kl_coef": jnp.float32(0.04), "train.entropy_coef": jnp.float32(0)},
            update=jnp.int32(0),
        )
        start = time.process_time()
        self.score = self._compiled(
            "reference",
            lambda w, b: scoring({POLICY: w, REFERENCE: w}, b, hyper)[0],
            weights,
            batch,
        )
        one = one | self.score()
        if "old_logps" not in one:
            one["old_logps"] = one["rollout_logps"]
        optimiser = self.algorithm.optimisers["train"].init(weights.trained)

        def change(trained: Any, frozen: Any, batch: Any) -> Any:
            after, _ = update(Trained(trained, optimiser), frozen, {}, batch, now, hyper)
            return jax.tree.map(lambda new, old: new - old, after.params, trained)

        self.update = self._compiled("update", change, weights.trained, weights.frozen, one)
        self.figures["compiling_cpu_s"] = round(time.process_time() - start, 1)
        self.seconds: dict[str, list[float]] = {"reference": [], "update": []}

    def _compiled(self, name: str, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        compiled = jax.jit(function).lower(*arguments).compile()
        memory: Any = compiled.memory_analysis()
        self.figures[f"{name}_temporary_mib"] = round(memory.temp_size_in_bytes / 2**20)
        return lambda: compiled(*arguments)

    def call(self) -> Any:
        """Time one call of each; return the gradient."""
        for name, function in (("reference", self.score), ("update", self.update)):
            start = time.process_time()
            found = jax.block_until_ready(function())
            self.seconds[name].append(time.process_time() - start)
        return found


def rows_of(algorithm: Algorithm, batch: dict[str, Any]) -> str:
    """Return how many model positions a variant computes for the tokens that need one."""
    sizes, needed = algorithm.sizes, int(jnp.sum(jnp.maximum(batch["mask"].sum(1) - 1, 0)))
    if not sizes.by_length:
        rows, tokens = batch["tokens"].shape
        return f"{rows * (tokens - 1) / needed:.2f} positions for each that is needed"
    buckets, done = Buckets.of(sizes, batch), 0.0
    spared = 0 if sizes.segments > 1 else 1  # nothing reads the last token of a row

    def count(sum_: Any, _: Any, micro: dict[str, Any]) -> Any:
        return sum_ + fill(micro)[1] - jnp.float32(spared * len(micro["mask"]))

    chunks = buckets.chunks(batch)
    for i in range(len(chunks["tokens"])):
        done += float(buckets.visit({name: x[i] for name, x in chunks.items()}, jnp.float32(0), count))
    return f"{done / needed:.2f} positions for each that is needed"


def measure(name: str, calls: int, variants: list[str]) -> dict[str, Any]:
    """Return the figures of a work in `whole` and other variants."""
    config = load(None, [*WORKS[name], *GRADIENT])
    models = Models(config=config, devices=Devices.open(config.mesh, config.apart), vocab_size=VOCAB)
    graphdef, weights = models.policy()
    size = in_update(config).choose(graphdef, weights)
    batch = sampled(config, SPREADS.get(name, "uniform"))
    made = {
        variant: Variant(
            load(None, [*WORKS[name], *GRADIENT, f"train.micro_batch_size={size}", *more]), weights, graphdef, batch
        )
        for variant, more in VARIANTS.items()
        if variant in ("whole", *variants)
    }
    gradients: dict[str, Any] = {}
    for _ in range(calls):
        gradients = {variant: each.call() for variant, each in made.items()}
    greatest = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(gradients["whole"]))
    for variant, each in made.items():
        fastest = {f"{part}_cpu_s": round(min(taken), 3) for part, taken in each.seconds.items()}
        both = sum(fastest.values())
        apart = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), gradients[variant], gradients["whole"])
        each.figures |= fastest | {"both_cpu_s": round(both, 3)}
        each.figures["gradient_error"] = max(jax.tree.leaves(apart)) / greatest
    first = made["whole"].figures["both_cpu_s"]
    for each in made.values():
        each.figures["faster"] = round(first / each.figures["both_cpu_s"], 2)
    return {"work": name, "micro_batch_size": size} | {variant: each.figures for variant, each in made.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("works", nargs="*", default=list(WORKS), metavar="|".join(WORKS))
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    options = parser.parse_args()
    if unknown := set(options.works) - set(WORKS):
        parser.error(f"unknown work {min(unknown)!r}; there are {', '.join(WORKS)}")
    register()
    print(
        json.dumps([measure(name, options.calls, options.variants) for name in options.works] + [machine()], indent=2)
    )


if __name__ == "__main__":
    main()

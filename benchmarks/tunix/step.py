"""Whole steps of tunix for works of `benchmarks/step.py`: `python benchmarks/tunix/step.py W1 W4`.

It runs in an environment of its own with `google-tunix`; nothing of Dovetail is imported. The model is tunix's Qwen2 in
the shape of ours, and `GRPOLearner` runs its own loop: its sampler, reference pass, loss, gradients in micro-batches,
AdamW. In W4 the logit of the end follows the position by the rule of `benchmarks/workloads.py`. The figures are CPU
seconds from one call of the reward to the next, means over the steps after the first two.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import importlib.metadata
import json
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from scipy.stats import lognorm
from tunix.models.qwen2.model import ModelConfig, Qwen2
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.rl_cluster import ClusterConfig, RLCluster, RLTrainingConfig, Role
from tunix.rl.rollout.base_rollout import RolloutConfig

VOCAB, EOS, PAD = 4096, 0, 1
PROMPTS, PROMPT, GROUP, LONGEST = 16, 64, 8, 64
MEDIAN, SIGMA, CAP = 64, 0.9, 512


def lognormal() -> list[float]:
    """Return the probability that completion token t is the end if none before it was."""
    longer = lognorm(SIGMA, scale=MEDIAN).sf(np.arange(CAP + 2))
    longer[1] = 1.0
    return [1e-9, *np.clip(1 - longer[2:] / longer[1:-1], 1e-9, 0.999).tolist()]


class Ending(Qwen2):
    """The model with a rule for the logit of the end; without one, nothing ends before the limit."""

    ends: tuple[float, ...] = (1e-9,)

    def __call__(self, input_tokens: Any, positions: Any, *rest: Any, **named: Any) -> tuple[Any, Any]:
        logits, cache = super().__call__(input_tokens, positions, *rest, **named)
        chance = jnp.asarray(self.ends, jnp.float32)[jnp.clip(positions - PROMPT + 2, 0, len(self.ends) - 1)]
        odds = jnp.log(chance) - jnp.log1p(-chance) + np.float32(np.log(VOCAB))
        logits = jnp.where(jnp.arange(VOCAB) == EOS, odds[..., None], logits)
        return jnp.where(jnp.arange(VOCAB) == PAD, np.float32(-30), logits), cache


class Numbers:
    """A tokenizer whose token 17 is the text '17'."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return [int(number) for number in text.split()]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return " ".join(map(str, ids))

    def bos_id(self) -> int:
        return 2

    def eos_id(self) -> int:
        return EOS

    def pad_id(self) -> int:
        return PAD


class Clock:
    """A reward that costs nothing and notes when it was called, and how long the completions were."""

    __name__ = "clock"

    def __init__(self) -> None:
        self.calls, self.tokens, self.rng = list[float](), list[int](), np.random.default_rng(2)

    def __call__(self, prompts: Sequence[str], completions: Sequence[str], **_: Any) -> list[float]:
        self.calls.append(time.process_time())
        self.tokens.append(sum(len(text.split()) for text in completions))
        return self.rng.normal(size=len(completions)).tolist()


def prompts(steps: int) -> Iterator[dict[str, Any]]:
    drawn = np.random.default_rng(3).integers(3, VOCAB, (steps, PROMPTS, PROMPT - 1))  # the sampler adds the first
    for batch in drawn:
        yield {"prompts": [" ".join(map(str, row)) for row in batch]}


def measure(work: str, size: int, steps: int) -> dict[str, Any]:
    """Return the figures of a work; `size` prompts, with all their completions, are a micro-batch."""
    longest = CAP if work == "W4" else LONGEST
    shape = {"num_layers": 4, "vocab_size": VOCAB, "embed_dim": 256, "hidden_dim": 1024, "num_heads": 4}
    more = {"head_dim": 64, "num_kv_heads": 2, "rope_theta": 10_000, "norm_eps": 1e-6}
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))
    Ending.ends = tuple(lognormal()) if work == "W4" else (1e-9,)
    with mesh:
        models = [Ending(ModelConfig(**shape, **more), rngs=nnx.Rngs(0)) for _ in range(2)]
    clock = Clock()
    training = RLTrainingConfig(
        actor_optimizer=optax.adamw(1e-6),
        eval_every_n_steps=10**9,
        max_steps=steps,
        mini_batch_size=PROMPTS,
        train_micro_batch_size=size,
        compute_logps_micro_batch_size=size,
        rollout_micro_batch_size=PROMPTS,
    )
    rollout = RolloutConfig(
        max_tokens_to_generate=longest,
        max_prompt_length=PROMPT,
        kv_cache_size=PROMPT + longest + 8,
        temperature=1.0,
        top_p=1.0,
        top_k=None,
    )
    cluster = RLCluster(
        actor=models[0],
        reference=models[1],
        tokenizer=Numbers(),
        cluster_config=ClusterConfig(
            role_to_mesh=dict.fromkeys((Role.ACTOR, Role.REFERENCE, Role.ROLLOUT), mesh),
            training_config=training,
            rollout_config=rollout,
        ),
    )
    learner = GRPOLearner(cluster, GRPOConfig(num_generations=GROUP, beta=0.04), [clock])
    learner.train(prompts(steps))
    seconds = np.diff(clock.calls)
    return {
        "step_cpu_s": round(statistics.mean(seconds[1:]), 2),
        "steps": [round(float(each), 2) for each in seconds],
        "tokens": clock.tokens,
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("works", nargs="*", default=["W1", "W4"], metavar="W1|W4")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[1], help="prompts in a micro-batch")
    options = parser.parse_args()
    versions = {name: importlib.metadata.version(name) for name in ("google-tunix", "jax", "flax")}
    for work in options.works:
        found = {size: measure(work, size, options.steps) for size in options.micro_batches}
        print(json.dumps({"work": work, **versions, "micro_batches": found}, indent=2), flush=True)


if __name__ == "__main__":
    main()

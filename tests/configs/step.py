"""One training step of a configuration on a fixed batch, with a minimal model and without rollout or files."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dovetail.config import Config
from dovetail.devices.compiled import share
from dovetail.plan.roles import CRITIC, POLICY
from dovetail.protocols import Weights
from dovetail.step.algorithm import Algorithm, assemble
from dovetail.step.collect import Collector
from dovetail.step.forward import ValueModel
from dovetail.step.moment import Moment
from dovetail.step.parts import merge
from dovetail.step.update import Trained, Update, mini_batches
from dovetail.training.metrics import means
from dovetail.training.models import split

VOCAB, WIDTH, PROMPTS, GROUP, PROMPT, TOKENS = 11, 4, 3, 4, 3, 7
SILENT = 0
"""A token that the model ignores."""


class BagOfWords(nnx.Module):
    """Predicts the next token from the sum of the previous tokens, without the silent ones; its cache is that sum.

    It compiles very quickly.
    """

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.width, self.vocab_size = WIDTH, VOCAB
        self.embedding = nnx.Param(jax.random.normal(rngs.params(), (VOCAB, WIDTH)))

    def __call__(self, tokens: Any, mask: Any, cache: Any = None, *, prefix: Any = None) -> tuple[Any, Any]:
        words = jnp.where((mask & (tokens != SILENT))[..., None], self.embedding[...][tokens], 0.0)
        before = sum(jnp.repeat(past, len(tokens) // len(past), axis=0) for past in (cache, prefix) if past is not None)
        total = jnp.cumsum(words, axis=1) + (0.0 if isinstance(before, int) else before[:, None])
        return jnp.tanh(total), total[:, -1]

    def logits(self, hidden: Any) -> Any:
        return hidden @ self.embedding[...].T

    def init_cache(self, batch: int, length: int) -> Any:
        return jnp.zeros((batch, WIDTH))


@functools.cache
def models() -> tuple[tuple[Any, Weights], tuple[Any, Weights]]:
    """Return the structure and weights of the policy and the critic, which are the same for every configuration."""
    policy = BagOfWords(nnx.Rngs(0))
    return split(policy), split(ValueModel(BagOfWords(nnx.Rngs(1)), WIDTH))


@functools.cache
def batch() -> Mapping[str, np.ndarray]:
    """Return the results of a rollout and its rewards, including all awkward cases.

    These are a hole in a mask, a row without policy tokens, an abstention, a group of equal scores, truncated rows.
    """
    rng = np.random.default_rng(0)
    rows = PROMPTS * GROUP
    mask = np.arange(TOKENS) < rng.integers(2, TOKENS + 1, rows)[:, None]
    mask[1, 0], mask[2] = False, False
    scores = rng.normal(size=rows)
    scores[GROUP : 2 * GROUP] = 1.0
    table = np.stack([scores, rng.normal(size=rows)], axis=1)
    table[0, 1] = np.nan
    found = {
        "prompt_tokens": np.repeat(rng.integers(0, VOCAB, (PROMPTS, PROMPT)), GROUP, axis=0).astype(np.int32),
        "prompt_mask": np.repeat(np.arange(PROMPT) >= np.arange(PROMPTS)[:, None], GROUP, axis=0),
        "tokens": rng.integers(0, VOCAB, (rows, TOKENS)).astype(np.int32),
        "mask": mask,
        "group_ids": np.repeat(np.arange(PROMPTS, dtype=np.int32), GROUP),
        "role_ids": np.arange(rows, dtype=np.int32) % 2,
        "rollout_logps": (rng.normal(scale=0.3, size=(rows, TOKENS)) - np.log(VOCAB)).astype(np.float32),
        "lengths": mask.sum(axis=1, dtype=np.int32),
        "truncated": mask.all(axis=1),
        "scores": scores.astype(np.float32),
        "score_table": table.astype(np.float32),
        "greedy_scores": np.repeat(rng.normal(size=PROMPTS), GROUP).astype(np.float32),
        "answer_tokens": rng.integers(0, VOCAB, (rows, TOKENS)).astype(np.int32),
        "answer_mask": np.arange(TOKENS) < np.repeat(rng.integers(1, TOKENS, PROMPTS), GROUP)[:, None],
    }
    lengths = np.where(np.arange(rows) % GROUP == 0, np.repeat(rng.integers(1, TOKENS, PROMPTS), GROUP), 0)
    found |= {
        "demo_prompt_tokens": found["prompt_tokens"][::-1],
        "demo_prompt_mask": found["prompt_mask"][::-1],
        "demo_tokens": np.repeat(rng.integers(0, VOCAB, (PROMPTS, TOKENS)), GROUP, axis=0).astype(np.int32),
        "demo_mask": np.arange(TOKENS) < lengths[:, None],
    }
    return {name: np.asarray(array) for name, array in found.items()}


@functools.cache
def episodes() -> Mapping[str, np.ndarray]:
    """Return the same batch as episodes of up to three turns, with a silent observation after each except the last."""
    found = dict(batch())
    rng, rows = np.random.default_rng(7), len(found["tokens"])
    written = np.arange(TOKENS) < rng.integers(1, TOKENS + 1, rows)[:, None]
    answered = np.isin(np.arange(TOKENS), (2, 4)) & np.roll(written, -1, axis=1) & (np.arange(TOKENS) < TOKENS - 1)
    turns = np.where(written, np.cumsum(np.roll(answered, 1, axis=1), axis=1), 0).astype(np.int32)
    there = np.arange(4) <= turns.max(axis=1)[:, None]
    earned = np.where(there, rng.normal(size=there.shape), 0).astype(np.float32)
    mask = written & ~answered
    mask[2] = False
    return found | {
        "tokens": np.where(answered, SILENT, 1 + found["tokens"] % (VOCAB - 1)).astype(np.int32),
        "mask": mask,
        "lengths": mask.sum(axis=1, dtype=np.int32),
        "observed": answered,
        "turns": turns,
        "turn_rewards": earned,
        "turn_mask": there,
        "anchor_ids": np.where(there, rng.integers(0, 2, there.shape), -1).astype(np.int32),
        "void_turns": there & (rng.random(there.shape) < 0.1),
        "tool_calls": turns.max(axis=1),
        "tool_errors": (rng.random(rows) < 0.3).astype(np.int32),
        "scores": found["scores"] + earned.sum(axis=1),
    }


def without_observations(given: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Return the same episodes without the observations; the policy tokens are moved together."""
    order = np.argsort(~given["mask"], axis=1, kind="stable")

    def moved(name: str) -> np.ndarray:
        return np.take_along_axis(given[name], order, axis=1)

    by_token = {name: moved(name) for name in ("tokens", "mask", "rollout_logps", "turns")}
    return given | by_token | {"observed": np.zeros_like(given["observed"])}


def collect(
    config: Config, given: Mapping[str, np.ndarray] | None = None
) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Estimate advantages as the learner does; return the batch, metric sums and the estimator's state."""
    algorithm = assemble(config)
    given = jax.tree.map(jnp.asarray, dict(batch() if given is None else given))
    for each in algorithm.filters:
        kept, _ = each(given, algorithm.hyper)
        given["mask"] = given["mask"] & kept[:, None]
    (estimator,) = algorithm.at("advantages")
    return share(Collector(algorithm=algorithm, graphdefs=_graphdefs()))(
        _weights(POLICY, *algorithm.plan.roles),
        given,
        _moment(algorithm, config),
        algorithm.hyper,
        estimator.build().init(2) if "state" in algorithm.plan else None,
    )


def one_step(config: Config, given: Mapping[str, np.ndarray] | None = None) -> tuple[dict[str, float], Any]:
    """Collect and update; return the metrics, and everything that the step has changed (for weights, the difference).

    Raises:
        DovetailError: if the configuration cannot be run.
    """
    algorithm, sizes = assemble(config), assemble(config).sizes
    collected, sums, state = collect(config, given)
    moment = _moment(algorithm, config)
    minis = mini_batches(collected, sizes.mini_batch_size, sizes.epochs, moment.key, sizes.rows_per_prompt)
    changes = {}
    for model in [CRITIC, POLICY] if algorithm.has_critic else [POLICY]:
        weights = _weights(model)[model]
        update = share(Update(algorithm=algorithm, graphdefs=_graphdefs(), model=model))
        optimiser = algorithm.optimisers["train" if model == POLICY else model]
        learner = Trained(weights.trained, optimiser.init(weights.trained))
        beside = _weights(*algorithm.plan.roles_in_update) if model == POLICY else {}
        for number, mini in enumerate(minis):
            now = moment.replace(update=jnp.int32(number))
            learner, found = update(learner, weights.frozen, beside, mini, now, algorithm.hyper)
            sums = merge(sums, found)
        changes[model] = jax.tree.map(lambda x, y: np.asarray(x) - np.asarray(y), learner.params, weights.trained)
    return means(sums), (changes, state)


def _graphdefs() -> dict[str, Any]:
    (policy, _), (critic, _) = models()
    return {POLICY: policy, CRITIC: critic}


def _weights(*roles: str) -> dict[str, Weights]:
    """Return weights by role; the roles other than policy and critic get slightly changed weights of the policy."""
    (_, policy), (_, critic) = models()
    beside = Weights(jax.tree.map(lambda x: x * 1.01, policy.trained), policy.frozen)
    return {role: {POLICY: policy, CRITIC: critic}.get(role, beside) for role in roles}


def _moment(algorithm: Algorithm, config: Config) -> Moment:
    controllers = {name: part.build() for name, part in algorithm.controllers.items()}
    return Moment(
        step=jnp.int32(3),
        total=jnp.int32(10),
        key=jax.random.key(0),
        coefficients={
            name: jnp.float32(each.coef(each.init(config.setting(name)))) for name, each in controllers.items()
        },
        update=jnp.int32(0),
    )

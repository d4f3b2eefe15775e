"""The engine's own plugin: it opens the built-in kinds and registers the fields that every run has."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl
from dovetail.plan.glossary import FIELDS

KINDS = {
    "advantage": "fields -> advantages, or (advantages, returns)",
    "policy_loss": "fields -> per-token loss",
    "value_loss": "fields -> per-token loss of the critic",
    "loss_agg": "mask (and group_ids, ...) -> per-token weights of the whole mini-batch",
    "kl": "logps, ref_logps -> per-token estimate of the divergence from the reference",
    "kl_controller": "observed KL -> coefficient, with state",
    "entropy_controller": "observed entropy -> coefficient of the entropy bonus, with state",
    "correction": "old_logps, rollout_logps, mask -> (is_weights, mask to keep)",
    "selection": "fields, advantages among them -> weights of tokens in the policy loss",
    "field": "fields -> one new field",
    "group_filter": "scores, group_ids -> which groups to keep",
    "reward": "completions and dataset columns by name -> one float (or None) per completion",
    "reward_manager": "score_table -> scores",
    "reward_shaping": "token_rewards -> token_rewards",
    "rollout": "the engine that samples completions",
    "sampling_preset": "values for the sampling settings that a config leaves open",
    "answer": "completions -> the answers that a majority vote counts",
    "agent_loop": "multi-turn control of a rollout",
    "tool": "what an agent loop may call",
    "interaction": "a simulated user or environment",
    "model": "architecture and loader",
    "architecture": "config.json of a model folder -> what its decoder is",
    "adapter": "what is trained in place of a model's own parameters",
    "tokenizer": "text <-> ids",
    "task": "prompts, dataset columns and demonstrations",
    "optimizer": "learning rate -> optax gradient transformation",
    "lr_schedule": "step, total_steps -> factor of the learning rate",
    "schedule": "step, total_steps -> coefficient",
    "sink": "where metrics go",
    "executor": "where trials and workers run",
    "early_stopping": "learning curves of a sweep's trials -> which of them to stop",
}

API: dict[str, tuple[int, ...]] = {}
"""Versions of a kind's contract that the engine understands, where it is not the first alone; docs/compatibility.md."""


@hookimpl
def dovetail_kinds(register_kind: Callable[..., None]) -> None:
    """Open the built-in kinds."""
    for name, summary in KINDS.items():
        options = {"exclusive": True, "reserved": frozenset(FIELDS)} if name == "field" else {}
        register_kind(name, summary, versions=API.get(name, (1,)), **options)


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the fields computed from the model's forward pass and from other fields."""
    register("field", "logps", "dovetail.fields:logps")
    register("field", "entropy", "dovetail.fields:entropy")

"""The batch fields that the engine itself provides; plugins add others as components of kind `field`.

This table is the glossary: `docs/glossary.md` is checked against it.
"""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class FieldInfo:
    """Shape, meaning, and the stage of a step that provides a field."""

    shape: str
    stage: str
    meaning: str


ROLLOUT = "rollout"
REWARD = "reward"
GREEDY = "greedy rollout"
COLLECT = "collection"
CRITIC = "critic"
ADVANTAGE = "advantage"
CORRECTION = "correction"
SCHEDULE = "schedule"
DATASET = "dataset"
ROLE = "dataset role"
ENGINE = "engine"

FIELDS: Final[dict[str, FieldInfo]] = {
    "prompt_tokens": FieldInfo("[seq, prompt] int", ROLLOUT, "the prompt, padded on the left"),
    "prompt_mask": FieldInfo("[seq, prompt] bool", ROLLOUT, "true on the prompt's tokens"),
    "tokens": FieldInfo("[seq, token] int", ROLLOUT, "the completion as sampled, padded on the right"),
    "mask": FieldInfo("[seq, token] bool", ROLLOUT, "true where the policy wrote the token, its EOS included"),
    "group_ids": FieldInfo("[seq] int", ROLLOUT, "which prompt a completion answers"),
    "rollout_logps": FieldInfo(
        "[seq, token]", ROLLOUT, "log-probabilities as the sampler reports them; `sampling.logps` says over what"
    ),
    "lengths": FieldInfo("[seq] int", ROLLOUT, "policy tokens of a completion"),
    "truncated": FieldInfo("[seq] bool", ROLLOUT, "hit the length limit without an EOS"),
    "scores": FieldInfo("[seq]", REWARD, "one total reward per completion"),
    "score_table": FieldInfo("[seq, reward]", REWARD, "each reward by itself; NaN where it abstained"),
    "greedy_scores": FieldInfo("[seq]", GREEDY, "score of the prompt's greedy completion"),
    "token_rewards": FieldInfo("[seq, token]", COLLECT, "rewards on tokens; the score sits on the last policy token"),
    "old_values": FieldInfo("[seq, token]", CRITIC, "the critic at collection"),
    "values": FieldInfo("[seq, token]", CRITIC, "the critic now (differentiable in its loss; at collection elsewhere)"),
    "advantages": FieldInfo("[seq, token]", ADVANTAGE, "zero outside the mask"),
    "returns": FieldInfo("[seq, token]", ADVANTAGE, "regression target of the critic"),
    "is_weights": FieldInfo("[seq, token]", CORRECTION, "off-policy correction; multiplies the per-token loss"),
    "answer_tokens": FieldInfo("[seq, token] int", DATASET, "the task's answer, in the form of a completion"),
    "answer_mask": FieldInfo("[seq, token] bool", DATASET, "true on the answer's tokens, its EOS included"),
    "role_ids": FieldInfo("[seq] int", ROLE, "number of the role that wrote it, from the column train.role_column"),
    "schedule_weight": FieldInfo("[]", SCHEDULE, "what train.schedule gives at this step"),
    "state": FieldInfo("pytree", ENGINE, "what the estimator that reads it remembers from the steps before"),
    "key": FieldInfo("PRNG key", ENGINE, "a key of this step, made from the seed and the step's number"),
    "progress": FieldInfo("[]", ENGINE, "share of the training steps done, 0 to 1"),
}

LOGITS: Final = frozenset({"logits", "ref_logits"})
"""Offered for a chunk of positions at a time."""

QUANTITY_READS: Final = LOGITS | {"hidden_states"}
"""What only a forward pass can offer: a `field` component that reads one of them is evaluated inside the pass."""

FORWARD_READS: Final = QUANTITY_READS | {"tokens", "mask"}
"""All that such a component may read. One that reads `mask` sees whole completions, and so no logits."""

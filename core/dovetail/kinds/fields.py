"""The batch fields that the engine itself provides; plugins add others as components of kind `field`, or as what the
components of a kind of their own write.

This table is the glossary: `docs/glossary.md` is checked against it.
"""

from __future__ import annotations

from typing import Final, Literal

import attrs

Combine = Literal["replace", "multiply", "and"]
"""What becomes of the results of several components that write one field: the last one stays, and each sees what the
one before has made of it; or they are multiplied, or joined by a logical and, and are seen when the stage is over."""

ENGINE = "engine"
"""There at every stage."""

TURNS: Final = "an agent loop with turns provides; set train.agent_loop to 'tool_agent'"


@attrs.frozen
class FieldInfo:
    """Shape, meaning, and the stage of a step that provides a field.

    `begun` says that it has a first value when its stage begins, so that what writes it may read it. `without` says, of
    a field that not every run has, what to set in order to have it.
    """

    shape: str
    stage: str
    meaning: str
    combine: Combine = "replace"
    begun: bool = False
    without: str = ""


FIELDS: Final[dict[str, FieldInfo]] = {
    "prompt_tokens": FieldInfo("[seq, prompt] int", "drawn", "the prompt, padded on the left"),
    "prompt_mask": FieldInfo("[seq, prompt] bool", "drawn", "true on the prompt's tokens"),
    "tokens": FieldInfo("[seq, token] int", "drawn", "the completion as sampled, padded on the right"),
    "mask": FieldInfo(
        "[seq, token] bool", "drawn", "true where the policy wrote the token, its EOS included", combine="and"
    ),
    "group_ids": FieldInfo("[seq] int", "drawn", "which prompt a completion answers"),
    "rollout_logps": FieldInfo(
        "[seq, token]", "drawn", "log-probabilities reported by the sampler; `sampling.logps` says over which tokens"
    ),
    "support": FieldInfo(
        "[seq, token, candidate] int",
        "drawn",
        "ids from which the token was sampled; padded with -1",
        without="an engine keeps for what compares its log-probabilities with the trainer's under sampling.top_k; set"
        " sampling.top_k, and sampling.logps to 'support'",
    ),
    "versions": FieldInfo(
        "[seq, token] int", "drawn", "version of the weights that sampled a token: the number of updates before them"
    ),
    "lengths": FieldInfo("[seq] int", "drawn", "policy tokens of a completion"),
    "truncated": FieldInfo("[seq] bool", "drawn", "hit the length limit without an EOS"),
    "observed": FieldInfo(
        "[seq, token] bool",
        "drawn",
        "true on observations between the policy's turns; attended to, but only in losses that read this mask",
        without=TURNS,
    ),
    "turns": FieldInfo(
        "[seq, token] int",
        "drawn",
        "which turn a token belongs to, counted from 0; an observation to the turn that it follows",
        without=TURNS,
    ),
    "turn_rewards": FieldInfo("[seq, turn]", "drawn", "reward of each turn from the interaction", without=TURNS),
    "turn_mask": FieldInfo("[seq, turn] bool", "drawn", "true on the turns that took place", without=TURNS),
    "anchor_ids": FieldInfo(
        "[seq, turn] int",
        "drawn",
        "the state before each turn, as a number that is equal for equal states; -1 where there is none",
        without=TURNS,
    ),
    "tool_calls": FieldInfo("[seq] int", "drawn", "calls of tools that were run", without=TURNS),
    "tool_errors": FieldInfo(
        "[seq] int", "drawn", "turns and calls that failed by the policy's own fault", without=TURNS
    ),
    "void_turns": FieldInfo(
        "[seq, turn] bool",
        "drawn",
        "true on void turns: a call that cannot be parsed, no text, or no end",
        without=TURNS,
    ),
    "answer_tokens": FieldInfo("[seq, token] int", "drawn", "the task's answer, laid out like a completion"),
    "answer_mask": FieldInfo("[seq, token] bool", "drawn", "true on the answer's tokens, its EOS included"),
    "demo_tokens": FieldInfo(
        "[seq, token] int", "drawn", "a demonstration of the task, laid out like a completion; one for each group"
    ),
    "demo_mask": FieldInfo(
        "[seq, token] bool",
        "drawn",
        "true on the demonstration's tokens, its EOS included, in the first of the rows that share it",
    ),
    "demo_prompt_tokens": FieldInfo("[seq, prompt] int", "drawn", "the demonstration's prompt, padded on the left"),
    "demo_prompt_mask": FieldInfo("[seq, prompt] bool", "drawn", "true on the tokens of the demonstration's prompt"),
    "role_ids": FieldInfo("[seq] int", "drawn", "number of the role that wrote it, from the column train.role_column"),
    "scores": FieldInfo("[seq]", "scored", "one total reward per completion, including the rewards of its turns"),
    "score_table": FieldInfo(
        "[seq, reward]",
        "scored",
        "each reward by itself; NaN where it abstained",
        without="rewards provide; set train.rewards to names",
    ),
    "staleness": FieldInfo(
        "[seq, token] int",
        "filtered",
        "number of updates between the weights that sampled a token and those at the beginning of the step",
    ),
    # of the prompts that a filter has kept: further greedy completions for those that it rejects would be wasted
    "greedy_scores": FieldInfo("[seq]", "filtered", "score of the prompt's greedy completion"),
    "process_rewards": FieldInfo(
        "[seq, token]",
        "scored",
        "sum of the process rewards of each token",
        without="process rewards provide; set train.process_rewards to names",
    ),
    "old_values": FieldInfo("[seq, token]", "passes", "the critic at collection", begun=True),
    "is_weights": FieldInfo(
        "[seq, token]",
        "corrections",
        "off-policy correction; multiplies the per-token loss",
        combine="multiply",
        without="a correction provides; set train.correction to a name",
    ),
    "token_rewards": FieldInfo(
        "[seq, token]", "token_rewards", "rewards on tokens; the score sits on the last policy token", begun=True
    ),
    "state": FieldInfo(
        "pytree", "advantages", "state of the estimator that reads it, kept from step to step", begun=True
    ),
    "advantages": FieldInfo("[seq, token]", "advantages", "zero outside the mask"),
    "returns": FieldInfo("[seq, token]", "advantages", "regression target of the critic"),
    "loss_weights": FieldInfo(
        "[seq, token]",
        "loss_masks",
        "product of the loss masks' factors on the policy loss",
        combine="multiply",
        without="a loss mask provides; set train.loss_mask to a name",
    ),
    "weights": FieldInfo("[seq, token]", "mini_batch", "the aggregation's weights of the whole mini-batch"),
    "values": FieldInfo(
        "[seq, token]", "passes", "the critic now (differentiable in its loss; at collection elsewhere)"
    ),
    "schedule_weight": FieldInfo(
        "[]",
        ENGINE,
        "value of train.schedule at this step",
        without="a schedule provides; set train.schedule to a name",
    ),
    "key": FieldInfo(
        "PRNG key",
        ENGINE,
        "a key of the step for each of its readers; before a mini-batch is split another one for each mini-batch",
    ),
    "row_keys": FieldInfo("[seq] PRNG key", ENGINE, "a key of the step for each row, whatever the split"),
    "progress": FieldInfo("[]", ENGINE, "share of the training steps done, 0 to 1"),
}

LOGITS: Final = "logits"
"""Offered for a chunk of positions at a time; `ref_logits` and other roles' beside."""

HIDDEN: Final = "hidden_states"
"""With it or logits, what only a forward pass can offer: a `field` that reads one is evaluated inside the pass."""

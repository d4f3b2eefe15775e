"""The batch fields that the engine itself provides.

Plugins add others, as components of kind `field` or as the fields that a kind of their own writes. `docs/glossary.md`
is generated from this table.
"""

from __future__ import annotations

from typing import Final, Literal

import attrs

Combine = Literal["replace", "multiply", "and"]
"""How the results of several components that write one field are combined.

`replace`: each component sees the result of the one before, and the last result is kept. `multiply` and `and`: the
results are multiplied, or combined by a logical and, and are visible only once the stage is over.
"""

ENGINE = "engine"
"""The stage of fields that exist at every stage."""

TURNS: Final = "an agent loop with turns provides; set train.agent_loop to 'tool_agent'"


@attrs.frozen
class FieldInfo:
    """A field's shape, its meaning, and the stage of a step that provides it.

    `begun` means that the field already has an initial value when its stage begins, so that the components that write
    it may also read it. `without`, for a field that not every run has, is the end of the sentence "... reads 'FIELD',
    which": who provides the field, and the setting that makes it available. `setting` is that setting if the field
    exists whenever it chooses a component, and empty if the planner has to ask for more than that.
    """

    shape: str
    stage: str
    meaning: str
    combine: Combine = "replace"
    begun: bool = False
    without: str = ""
    setting: str = ""


FIELDS: Final[dict[str, FieldInfo]] = {
    "prompt_tokens": FieldInfo("[seq, prompt] int", "drawn", "the prompt, padded on the left"),
    "prompt_mask": FieldInfo("[seq, prompt] bool", "drawn", "true on the prompt's tokens"),
    "tokens": FieldInfo("[seq, token] int", "drawn", "the completion as sampled, padded on the right"),
    "mask": FieldInfo(
        "[seq, token] bool", "drawn", "true where the policy wrote the token, its EOS included", combine="and"
    ),
    "group_ids": FieldInfo("[seq] int", "drawn", "which prompt a completion answers"),
    "rollout_logps": FieldInfo(
        "[seq, token]",
        "drawn",
        "log-probabilities reported by the sampler; `sampling.logps` says over which ids",
        without="an engine reports of completions that it samples; set train.rollout to one that does, such as"
        " 'vanilla'",
    ),
    "support": FieldInfo(
        "[seq, token, candidate] int",
        "drawn",
        "ids that the token was sampled from; -1 is padding",
        without="an engine keeps for what compares its log-probabilities with the trainer's under sampling.top_k; set"
        " sampling.top_k, and sampling.logps to 'support'",
    ),
    "choices": FieldInfo(
        "[seq, token, choice] int",
        "drawn",
        "what the sampling model chose while it read the token, such as experts; -1 where it read none",
        without="an engine records with train.replay_choices = True",
    ),
    "prompt_choices": FieldInfo(
        "[seq, prompt, choice] int",
        "drawn",
        "what the sampling model chose while it read the prompt",
        without="an engine records with train.replay_choices = True",
    ),
    "versions": FieldInfo(
        "[seq, token] int", "drawn", "version of the weights that sampled a token: the number of updates before them"
    ),
    "lengths": FieldInfo("[seq] int", "drawn", "number of policy tokens in a completion"),
    "truncated": FieldInfo("[seq] bool", "drawn", "true where a completion hit the length limit without an EOS"),
    "observed": FieldInfo(
        "[seq, token] bool",
        "drawn",
        "true on tokens between the policy's turns; attended to, but trained on only by a loss that reads this field",
        without=TURNS,
    ),
    "turns": FieldInfo(
        "[seq, token] int",
        "drawn",
        "which turn a token belongs to, counted from 0; an observation belongs to the turn that it follows",
        without=TURNS,
    ),
    "turn_rewards": FieldInfo("[seq, turn]", "drawn", "the interaction's reward for each turn", without=TURNS),
    "turn_mask": FieldInfo("[seq, turn] bool", "drawn", "true on the turns that took place", without=TURNS),
    "anchor_ids": FieldInfo(
        "[seq, turn] int",
        "drawn",
        "the state before each turn, as a number that is equal for equal states; -1 where there is none",
        without=TURNS,
    ),
    "tool_calls": FieldInfo("[seq] int", "drawn", "number of tool calls that were run", without=TURNS),
    "tool_errors": FieldInfo(
        "[seq] int", "drawn", "number of turns and calls that failed through the policy's own fault", without=TURNS
    ),
    "void_turns": FieldInfo(
        "[seq, turn] bool",
        "drawn",
        "true on a turn without usable text: a call that cannot be parsed, no text, or cut off",
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
    "role_ids": FieldInfo(
        "[seq] int", "drawn", "index of the role that wrote the completion, from the column train.role_column"
    ),
    "scores": FieldInfo("[seq]", "scored", "total reward of a completion, including the rewards of its turns"),
    "score_table": FieldInfo(
        "[seq, reward]",
        "scored",
        "each reward separately; NaN where it abstained",
        without="rewards provide; set train.rewards to names",
        setting="train.rewards",
    ),
    "staleness": FieldInfo(
        "[seq, token] int",
        "filtered",
        "number of updates between the weights that sampled a token and those that the step begins with",
    ),
    # only for the prompts that a filter kept: greedy completions of rejected prompts would be wasted
    "greedy_scores": FieldInfo("[seq]", "filtered", "score of the prompt's greedy completion"),
    "process_rewards": FieldInfo(
        "[seq, token]",
        "scored",
        "sum of the process rewards of each token",
        without="process rewards provide; set train.process_rewards to names",
        setting="train.process_rewards",
    ),
    "old_values": FieldInfo("[seq, token]", "passes", "the critic's values at collection", begun=True),
    "is_weights": FieldInfo(
        "[seq, token]",
        "corrections",
        "off-policy weights; they multiply the per-token loss",
        combine="multiply",
        without="a correction provides; set train.correction to a name",
        setting="train.correction",
    ),
    "token_rewards": FieldInfo(
        "[seq, token]", "token_rewards", "rewards per token; the score is on the last policy token", begun=True
    ),
    "state": FieldInfo(
        "pytree", "advantages", "state of the estimator that reads it, kept from step to step", begun=True
    ),
    "advantages": FieldInfo("[seq, token]", "advantages", "advantage of each token; zero outside the mask"),
    "returns": FieldInfo("[seq, token]", "advantages", "regression target of the critic"),
    "loss_weights": FieldInfo(
        "[seq, token]",
        "loss_masks",
        "weights that loss masks multiply the policy loss by",
        combine="multiply",
        without="a loss mask provides; set train.loss_mask to a name",
        setting="train.loss_mask",
    ),
    "weights": FieldInfo("[seq, token]", "mini_batch", "the aggregation's token weights for the whole mini-batch"),
    "values": FieldInfo(
        "[seq, token]", "passes", "the critic's values: differentiable in its own loss, at collection elsewhere"
    ),
    "schedule_weight": FieldInfo(
        "[]",
        ENGINE,
        "the value of train.schedule at this step",
        without="a schedule provides; set train.schedule to a name",
        setting="train.schedule",
    ),
    "key": FieldInfo(
        "PRNG key", ENGINE, "a different key for each reader and step; at stage mini_batch, for each mini-batch too"
    ),
    "row_keys": FieldInfo(
        "[seq] PRNG key", ENGINE, "one key per row and step, which does not depend on how the batch is split"
    ),
    "progress": FieldInfo("[]", ENGINE, "fraction of the training steps done, 0 to 1"),
}

LOGITS: Final = "logits"
"""Available for one chunk of positions at a time, as are `ref_logits` and those of other roles."""

HIDDEN: Final = "hidden_states"
"""Like logits, available only in a forward pass: a `field` component that reads either is evaluated inside the pass."""

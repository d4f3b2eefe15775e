"""The claims that a component may make with `dovetail.declares`, and their meaning."""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Claim:
    """A claim: the kinds that may make it (empty for all), and its meaning."""

    kinds: tuple[str, ...]
    meaning: str


CLAIMS: Final[dict[str, Claim]] = {
    "settings": Claim(
        (), 'hyperparameters to check it with, `settings={"least": 3}`, if the defaults are unsuitable or missing'
    ),
    "expected_failures": Claim(
        (),
        'checks that it is known to fail, each with the reason, `expected_failures={"vmap": "calls a library"}`; one'
        " that passes is an error",
    ),
    "excludes": Claim((), "kinds of which a config may choose none beside it, because it does their work itself"),
    "idle": Claim(
        (),
        "hyperparameters that are numbers and change nothing but in cases that the checks do not have, or nothing but"
        " the time that it takes, as a number of threads",
    ),
    "programs": Claim(
        (),
        "hyperparameters that name programs to run or servers to call, which the config of a run folder sets only with"
        " `--trust`",
    ),
    "files": Claim(
        (),
        "hyperparameters that name files or folders: a text, or a tuple or dict of texts. Each may be a path,"
        " `FILE.py:NAME`, or something else. From whatever folder a run is read, a relative path is looked for where it"
        " was when the run was started",
    ),
    "per_reward": Claim((), "hyperparameters with a number for each reward of `train.rewards`, or None"),
    "on_policy_gradient": Claim(("policy_loss",), "on policy, its gradient by logps is -A"),
    "pessimistic": Claim(
        ("policy_loss",), "no gradient once the ratio has moved far in the direction of A, and always one against it"
    ),
    "regularised": Claim(
        ("policy_loss",),
        "has a term that pulls a token back once it has moved too far, or that stays where the advantage is zero, so"
        " that its gradient may point against the advantage",
    ),
    "averaged_by": Claim(
        ("policy_loss",),
        "the aggregation under which it is the objective of its paper; `explain`, `plan` and `train` say so if a config"
        " has another",
    ),
    "whole_groups": Claim(("loss_term",), "compares the completions of a group, so micro-batches hold whole groups"),
    "surrogate": Claim(
        ("policy_loss", "value_loss", "loss_term", "kl", "field"),
        "its gradient is not that of its value, because it contains a stop-gradient",
    ),
    "shift_invariant": Claim(("advantage",), "adding a constant to all scores of a group changes nothing"),
    "zero_mean": Claim(("advantage",), "the advantages of a group's completions add up to zero"),
    "whitened": Claim(
        ("advantage",), "normalised to mean 0 and variance 1 over the batch, so one group affects the others"
    ),
    "across_groups": Claim(
        ("advantage",),
        "compares with other prompts too: a baseline or a scale that is in part that of the batch, on purpose",
    ),
    "by_position": Claim(("advantage",), "compares completions position by position, and counts the tokens of tools"),
    "by_turn": Claim(
        ("advantage",),
        "tells the turns of an episode apart even where a group's scores are equal: by how near the end is",
    ),
    "about": Claim(
        (), "of a term of the loss that reads several masks of tokens, the one over whose tokens it is summed"
    ),
    "unbiased_value": Claim(("kl",), "its expectation is KL(π || π_ref)"),
    "unbiased_gradient": Claim(("kl",), "the expectation of its gradient, token by token, is that of KL(π || π_ref)"),
    "zero_expected_gradient": Claim(("kl",), "the expectation of its gradient is zero: as a loss it only adds noise"),
    "non_negative": Claim(("kl",), "never below zero"),
    "sums_to_one": Claim(("loss_agg",), "the weights add up to 1 if there is any policy token"),
    "beyond_scores": Claim(
        ("advantage",),
        "judges something beside the group's scores, such as lengths or the scores of earlier steps, so that equal"
        " scores say nothing",
    ),
    "not_monotone": Claim(
        ("advantage", "reward_manager", "reward_shaping"),
        "more may give less. advantage: a higher score may give a completion a lower advantage, or a reward may act on"
        " tokens after it; reward_manager: a higher reward may give a lower score; reward_shaping: a higher reward may"
        " become a lower one",
    ),
    "leaves_out": Claim(("loss_agg",), "gives some policy tokens no weight"),
    "neither_mean_nor_sum": Claim(
        ("loss_agg",), "twice as many tokens, or completions, neither leave the total of the weights nor double it"
    ),
    "scales": Claim(("correction",), "weights are not 1 where sampler and trainer agree"),
    "unnormalised": Claim(("field",), "depends on the level of the logits, not on the probabilities alone"),
    "undefined_at_rest": Claim(
        ("optimizer",), "is not a number at a learning rate of zero or a gradient of zero, so a config must avoid both"
    ),
    "signed": Claim(("lr_schedule", "schedule"), "may give negative numbers"),
    "noisy": Claim(("optimizer",), "its steps contain noise of its own, drawn with a key in its state"),
    "scheduled": Claim(
        ("optimizer", "kl_controller", "entropy_controller"),
        "its method has a schedule of its own, such as a slow start; that of a controller looks at nothing observed",
    ),
    "absolute": Claim(("early_stopping",), "judges a trial by its own curve, and may stop the only one"),
    "needs_all": Claim(("reward_manager",), "a completion on which any reward abstained has no score"),
    "needs_first": Claim(("reward_manager",), "a completion on which the first reward abstained has no score"),
    "alphabet": Claim(
        ("tokenizer",),
        "the only characters that it encodes, with the default settings; others are refused with a DataError",
    ),
    "absent_is_zero": Claim(("reward_manager",), "a reward that abstained counts as 0, as in a sum"),
    "compares": Claim(
        ("reward_manager", "group_filter", "completion_filter", "loss_mask", "reward_shaping"),
        "the score of a completion depends on those of others, or what is kept or made of a group on other groups; that"
        " a filter, a mask or a shaping compares the completions of one group needs no claim",
    ),
    "repeats": Claim(("task",), "the same example may come more than once"),
    "loaded": Claim(("model", "adapter"), "weights are read, so that no seed decides them"),
    "beyond_low_rank": Claim(
        ("adapter",), "with its settings is more than low-rank changes of matrices, such as DoRA's magnitudes"
    ),
    "low_rank_only": Claim(
        ("rollout",),
        "the hyperparameter with which it gets the adapter by itself and reads low-rank changes of matrices alone; an"
        " adapter that is more is refused with it",
    ),
    "elsewhere": Claim(("sink",), "writes neither into the folder nor to the console"),
    "newest_only": Claim(("sink",), "shows the newest figures, which replace the earlier ones"),
    "keeps_support": Claim(("rollout",), "the largest `sampling.top_k` for which it keeps the support; 0 if none"),
    "keeps_choices": Claim(("rollout",), "can record what the model chooses while it reads each token"),
    "constant": Claim(
        ("kl_controller", "entropy_controller", "follower"), "the coefficient, or the weights, never change"
    ),
    "keeps_zero": Claim(
        ("kl_controller", "entropy_controller"),
        "a coefficient of 0 stays 0, as one that is multiplied does, so that the plan leaves its term out",
    ),
    "range": Claim(("reward",), "the lowest and the highest score, with the default settings"),
    "examples": Claim(
        ("reward", "process_reward", "answer"),
        "pairs of records, each a dict of columns, to which `group_ids`, `tokens` and `logps` may belong: the first"
        " scores higher than the second; for an answer, two completions with different answers, in the form that it"
        ' looks for: `({"completions": "It is 3/4."}, {"completions": "so 2/3"})`',
    ),
    "abstains": Claim(("reward",), "gives no score where the column `answer` is None"),
    "any_answer": Claim(
        ("reward",),
        "a completion that gives several answers, each in its tags or box, is right if one of them is; a list in one"
        " pair of tags is one answer",
    ),
    "last_answer": Claim(
        ("reward", "answer"),
        "where a completion gives several answers, the last one counts; for an answer, unless False",
    ),
    "systematic": Claim(("sampler",), "goes through settings in an order of its own, whatever the seed"),
    "deterministic": Claim(
        ("reward", "process_reward", "tool"),
        "unless False, a completion always gets the same score, whatever the others are, or a call the same answer; a"
        " reward that reads `group_ids`, to compare the completions of a prompt, is deterministic, too",
    ),
    "own_process": Claim(
        ("tool",),
        "each call runs in a process of its own, so that several threads may call it, as many as there are cores",
    ),
    "turns": Claim(("agent_loop",), "an episode may go on after a turn, so that there are the fields of turns"),
    "batch_invariant": Claim(("rollout",), "a completion does not depend on the rest of the batch"),
    "in_flight": Claim(
        ("rollout",),
        "takes newer weights in the middle of completions, and says of each token which ones sampled it",
    ),
    "versions": Claim(
        ("rollout",),
        "may sample while the trainer updates, each completion with the weights whose version it carries",
    ),
    "placed": Claim(
        ("rollout", "reward"), "computes with JAX in this process, on the devices that `KIND/mesh` gives its kind"
    ),
    "slots": Claim(("rollout",), "so many completions are decoded at a time, for which the plan counts a cache"),
    "vocabulary_logps": Claim(
        ("rollout",), "unless False, log-probabilities over the whole vocabulary can be asked for"
    ),
    "reports_logps": Claim(
        ("rollout",),
        "unless False, it samples the completions of training steps, and reports their log-probabilities",
    ),
    "reads_examples": Claim(("rollout",), "takes the examples of training steps, `generate(..., examples=...)`"),
}

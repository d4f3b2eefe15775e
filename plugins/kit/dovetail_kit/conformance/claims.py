"""What a component may claim with `dovetail.declares`, and what comes of it."""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Claim:
    """A claim: of which kinds (none: all), and what it says."""

    kinds: tuple[str, ...]
    meaning: str


CLAIMS: Final[dict[str, Claim]] = {
    "settings": Claim((), "hyperparameters to check it with, where the defaults do not do or there are none"),
    "expected_failures": Claim((), "checks that it is known to fail, with the reason; one that passes is an error"),
    "excludes": Claim((), "kinds of which none may be chosen beside it, since it does their work itself"),
    "per_reward": Claim((), "hyperparameters that have a number for each reward of `train.rewards`, or are None"),
    "on_policy_gradient": Claim(("policy_loss",), "on policy its gradient by logps is -A"),
    "pessimistic": Claim(
        ("policy_loss",), "no gradient where the ratio has moved far enough the way A asks for, one where it has not"
    ),
    "regularised": Claim(("policy_loss",), "has a term that does not vanish with the advantage, or points elsewhere"),
    "surrogate": Claim(
        ("policy_loss", "value_loss", "kl"), "its gradient is not that of its value: a stop-gradient is in it"
    ),
    "shift_invariant": Claim(("advantage",), "a constant added to all scores of a group changes nothing"),
    "zero_mean": Claim(("advantage",), "advantages of the completions of a group add up to zero"),
    "whitened": Claim(("advantage",), "brought to mean 0 and variance 1 over the batch, so that groups meet"),
    "by_position": Claim(("advantage",), "compares completions position by position, tool tokens counted"),
    "unbiased_value": Claim(("kl",), "its expectation is KL(π || π_ref)"),
    "unbiased_gradient": Claim(("kl",), "the expectation of its gradient is that of KL(π || π_ref)"),
    "zero_expected_gradient": Claim(("kl",), "the expectation of its gradient is zero: as a loss it adds noise"),
    "non_negative": Claim(("kl",), "never below zero"),
    "sums_to_one": Claim(("loss_agg",), "the weights add up to 1 where there is any policy token"),
    "constant": Claim(("kl_controller", "entropy_controller"), "the coefficient never changes"),
    "range": Claim(("reward",), "the least and the greatest score, with the default settings"),
    "examples": Claim(
        ("reward",), "pairs of records, a good and a bad one by column: the first scores more than the second"
    ),
    "deterministic": Claim(
        ("reward",), "unless False: a completion gets the same score whenever and beside whichever others"
    ),
    "batch_invariant": Claim(("rollout",), "a completion does not depend on the rest of the batch"),
    "vocabulary_logps": Claim(("rollout",), "unless False: reports log-probabilities over the vocabulary if asked"),
}

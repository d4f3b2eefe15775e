"""Dynamic sampling: groups that a filter rejects are replaced by further prompts, within a bound."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from jaxtyping import Bool, Int

from dovetail.host.rewards import Scores, joined
from dovetail.host.sampling import Sampled
from dovetail.protocols import Completions


def refill(
    sample: Callable[[int], Sampled], keep: Callable[[Sampled], Bool[np.ndarray, "prompt"]], rounds: int
) -> tuple[Sampled, dict[str, float]]:
    """Sample rounds of prompts until as many groups are kept as one round has.

    Args:
        sample: makes one round, given its number; every round has the same number of prompts.
        keep: which groups of a round to keep.
        rounds: how many rounds there may be after the first.

    Returns:
        As many groups as one round has: the kept ones in the order in which they were drawn, then, if the rounds did
        not give enough, rejected ones whose rows are left out of everything; and metrics: `kept`, the share of the
        sampled groups that the filter kept, and `rounds`, how many were sampled.
    """
    drawn, kept = [], []
    wanted = 0
    for number in range(rounds + 1):
        drawn.append(sample(number))
        kept.append(np.asarray(keep(drawn[-1]), bool))
        wanted = len(kept[0])
        if sum(int(k.sum()) for k in kept) >= wanted:
            break
    good = np.concatenate(kept)
    order = np.argsort(~good, kind="stable")[:wanted]
    chosen = select(join(drawn), order)
    samples = len(chosen.texts) // wanted
    chosen = attrs.evolve(chosen, kept=np.repeat(good[order], samples))
    return chosen, {"group_filter/kept": float(good.mean()), "group_filter/rounds": float(len(drawn))}


def join(parts: list[Sampled]) -> Sampled:
    """Put rounds one after another."""
    process = [part.process_rewards for part in parts if part.process_rewards is not None]
    return Sampled(
        examples=tuple(example for part in parts for example in part.examples),
        texts=tuple(text for part in parts for text in part.texts),
        completions=Completions.joined([part.completions for part in parts]),
        prompt_tokens=np.concatenate([part.prompt_tokens for part in parts]),
        prompt_mask=np.concatenate([part.prompt_mask for part in parts]),
        scores=Scores.joined([part.scores for part in parts]),
        kept=np.concatenate([part.kept for part in parts]),
        process_rewards=np.concatenate(process) if len(process) == len(parts) else None,
        process_metrics=joined([part.process_metrics for part in parts], [len(part.texts) for part in parts]),
    )


def select(sampled: Sampled, prompts: Int[np.ndarray, "prompt"]) -> Sampled:
    """Take the groups of some prompts, in that order."""
    samples = len(sampled.texts) // len(sampled.prompt_tokens)
    rows = (prompts[:, None] * samples + np.arange(samples)).reshape(-1)
    return Sampled(
        examples=tuple(sampled.examples[row] for row in rows),
        texts=tuple(sampled.texts[row] for row in rows),
        completions=sampled.completions.rows(rows),
        prompt_tokens=sampled.prompt_tokens[prompts],
        prompt_mask=sampled.prompt_mask[prompts],
        scores=sampled.scores.rows(rows),
        kept=sampled.kept[rows],
        process_rewards=None if sampled.process_rewards is None else sampled.process_rewards[rows],
        process_metrics={name: values[rows] for name, values in sampled.process_metrics.items()},
    )

"""Dynamic sampling: groups that a filter rejects are replaced with groups of other prompts, up to a limit."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from jaxtyping import Bool

from dovetail.host.sampling import Sampled


def refill(
    sample: Callable[[int], Sampled], keep: Callable[[Sampled], Bool[np.ndarray, "prompt"]], rounds: int
) -> tuple[Sampled, dict[str, float]]:
    """Sample rounds of prompts until as many groups are kept as one round has.

    Args:
        sample: samples the round with a given number; every round has the same number of prompts.
        keep: returns which groups of a round to keep.
        rounds: the greatest number of rounds after the first.

    Returns:
        As many groups as one round has: first the kept groups in the order in which they were sampled, then, if there
        are not enough, rejected groups, which are left out of everything; and metrics: `kept`, the share of the sampled
        groups that the filter kept, and `rounds`, the number of rounds.
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
    chosen = Sampled.joined(drawn).of(order)
    chosen = attrs.evolve(chosen, kept=np.repeat(good[order], chosen.group_size))
    return chosen, {"group_filter/kept": float(good.mean()), "group_filter/rounds": float(len(drawn))}

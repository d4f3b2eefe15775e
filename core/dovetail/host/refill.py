"""Dynamic sampling: groups that a filter rejects are replaced with groups of other prompts, up to a limit."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from jaxtyping import Bool

from dovetail.host.sampling import Sampled


@attrs.frozen(kw_only=True)
class Refilled:
    """The groups of a step.

    Attributes:
        chosen: as many groups as wanted: first those that the filter kept, in the order in which they were sampled,
            then, if there are not enough, rejected groups, which are left out of everything.
        over: the groups that the filter kept beyond these, in order; None if there are none.
        metrics: `kept`, the share of the sampled groups that the filter kept, and `rounds`, the number of rounds.
        counts: groups that were sampled, used, left over, and refused by the filter. Those sampled and those left over
            by earlier steps are as many as the other three together.
    """

    chosen: Sampled
    over: Sampled | None
    metrics: dict[str, float]
    counts: dict[str, float]


def refill(
    sample: Callable[[int], Sampled],
    keep: Callable[[Sampled], Bool[np.ndarray, "prompt"]],
    wanted: int,
    rounds: int,
    over: Sampled | None = None,
) -> Refilled:
    """Sample rounds of prompts until enough groups are kept.

    Args:
        sample: samples the round with a given number.
        keep: returns which groups of a round to keep.
        wanted: the number of groups, at most that of one round.
        rounds: the greatest number of rounds after the first.
        over: kept groups that earlier steps have left over; they are used first, and count as kept.
    """
    drawn = [] if over is None else [over]
    kept = [np.ones(part.prompts, bool) for part in drawn]
    earlier = sum(part.prompts for part in drawn)
    for number in range(rounds + 1):
        if sum(int(k.sum()) for k in kept) >= wanted:
            break
        drawn.append(sample(number))
        kept.append(np.asarray(keep(drawn[-1]), bool))
    good = np.concatenate(kept)
    order, found = np.argsort(~good, kind="stable"), int(good.sum())
    joined, fresh = Sampled.joined(drawn), good[earlier:]
    chosen = joined.of(order[:wanted])
    metrics = {"group_filter/kept": float(fresh.mean())} if len(fresh) else {}
    counts = {
        "drawn": len(fresh),
        "used": min(found, wanted),
        "over": max(found - wanted, 0),
        "refused": (~fresh).sum(),
    }
    return Refilled(
        chosen=attrs.evolve(chosen, kept=np.repeat(good[order[:wanted]], chosen.group_size)),
        over=joined.of(order[wanted:found]) if found > wanted else None,
        metrics=metrics | {"group_filter/rounds": float(len(drawn) - (over is not None))},
        counts={f"group_filter/{name}": float(count) for name, count in counts.items()},
    )

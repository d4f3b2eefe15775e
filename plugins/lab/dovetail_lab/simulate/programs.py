"""The sampler's and the trainer's program, moment by moment."""

from __future__ import annotations

from collections import deque

import attrs
import numpy as np
from jaxtyping import Float, Int


@attrs.frozen(kw_only=True)
class Forecast:
    """What a step comes to, in the mean over many.

    Attributes:
        step: seconds from one update's end to the next.
        idle_trainer: share of them in which the trainer waits for a batch.
        idle_sampler: share of them in which the sampler waits for weights.
        staleness: updates between the weights that a batch was sampled with and those that it is learnt with.
        rounds: rounds of sampling.
    """

    step: float
    idle_trainer: float
    idle_sampler: float
    staleness: float
    rounds: float = 1.0


@attrs.frozen(kw_only=True)
class Rounds:
    """Dynamic sampling: rounds of prompts until enough groups have passed a filter.

    Attributes:
        wanted: groups of a step, `train.prompts`.
        more: `train.oversample`, the prompts that a round has beyond these; None drops what is left over.
        passing: the probability that a group passes the filter.
        most: the greatest number of rounds, 1 + `train.refill_rounds`.
    """

    wanted: int
    more: int | None
    passing: float
    most: int

    @property
    def size(self) -> int:
        """Groups of a round."""
        return self.wanted + (self.more or 0)

    def drawn(self, steps: int, rng: np.random.Generator) -> tuple[Int[np.ndarray, "step"], Float[np.ndarray, "step"]]:
        """Return the rounds of each step, and the steps for which its groups have waited, in the mean over them.

        Groups left over are used first, the oldest first. If all steps find enough groups and nothing is dropped, each
        round yields passing · size groups of which each step uses `wanted`, so the mean number of rounds is
        wanted / (passing · size). Without anything left over and with one group wanted of rounds of one, it is that of
        a geometric distribution cut off at R = most: (1 - (1 - passing)^R) / passing.

        >>> every_second = Rounds(wanted=4, more=4, passing=1.0, most=1)
        >>> [found.tolist() for found in every_second.drawn(4, np.random.default_rng(0))]
        [[1, 0, 1, 0], [0.0, 1.0, 0.0, 1.0]]
        """
        rounds, ages = np.zeros(steps, int), np.zeros(steps)
        over = deque[tuple[int, int]]()
        for n in range(steps):
            while sum(groups for _, groups in over) < self.wanted and rounds[n] < self.most:
                over.append((n, int(rng.binomial(self.size, self.passing))))
                rounds[n] += 1
            left = used = min(self.wanted, sum(groups for _, groups in over))
            while left:
                since, groups = over.popleft()
                taken = min(left, groups)
                ages[n] += (n - since) * taken / used
                left -= taken
                if taken < groups:
                    over.appendleft((since, groups - taken))
            if self.more is None:
                over.clear()
        return rounds, ages


def simulate(
    sampling: Float[np.ndarray, "step"],
    training: Float[np.ndarray, "step"],
    k: int,
    ages: Float[np.ndarray, "step"] | float = 0.0,
) -> Forecast:
    """Run both programs; batch n is drawn with the weights of max(0, n - k) updates.

    With s_n the seconds of drawing batch n and u_n those of learning from it, they end at

        S_n = max(S_{n-1}, U_{n-k-1}) + s_n,    U_n = max(U_{n-1}, S_n) + u_n,    S_{-1} = U_{<0} = 0.

    k = 0 is one after the other, s + u; a large k tends to max(E[s], E[u]); for exponential s and u of equal mean the
    trainer is busy for (k + 1) / (k + 2) of the time (a closed cycle of two servers and k + 1 customers). `ages` are
    the steps for which the groups of a batch have waited; they add to its staleness.

    >>> sampling, training = np.full(200, 1.0), np.full(200, 3.0)
    >>> [round(simulate(sampling, training, k).step, 1) for k in (0, 1)]
    [4.0, 3.0]
    """
    steps = len(sampling)
    drawn, learnt = np.zeros(steps), np.zeros(steps)
    for n in range(steps):
        weights = learnt[n - k - 1] if n > k else 0.0
        drawn[n] = max(drawn[n - 1] if n else 0.0, weights) + sampling[n]
        learnt[n] = max(learnt[n - 1] if n else 0.0, drawn[n]) + training[n]
    total = float(learnt[-1])
    return Forecast(
        step=total / steps,
        idle_trainer=1.0 - float(training.sum()) / total,
        idle_sampler=1.0 - float(sampling.sum()) / total,
        staleness=float(np.minimum(np.arange(steps), k + ages).mean()),
    )

"""The sampler's and the trainer's program, moment by moment."""

from __future__ import annotations

import attrs
import numpy as np
from jaxtyping import Float


@attrs.frozen(kw_only=True)
class Forecast:
    """What a step comes to, in the mean over many.

    Attributes:
        step: seconds from one update's end to the next.
        idle_trainer: share of them in which the trainer waits for a batch.
        idle_sampler: share of them in which the sampler waits for weights.
        staleness: updates between the weights that a batch was sampled with and those that it is learnt with.
    """

    step: float
    idle_trainer: float
    idle_sampler: float
    staleness: float


def simulate(sampling: Float[np.ndarray, "step"], training: Float[np.ndarray, "step"], k: int) -> Forecast:
    """Run both programs; batch n is drawn with the weights of max(0, n - k) updates.

    With s_n the seconds of drawing batch n and u_n those of learning from it, they end at

        S_n = max(S_{n-1}, U_{n-k-1}) + s_n,    U_n = max(U_{n-1}, S_n) + u_n,    S_{-1} = U_{<0} = 0.

    k = 0 is one after the other, s + u; a large k tends to max(E[s], E[u]); for exponential s and u of equal mean the
    trainer is busy for (k + 1) / (k + 2) of the time (a closed cycle of two servers and k + 1 customers).

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
        staleness=float(np.minimum(np.arange(steps), k).mean()),
    )

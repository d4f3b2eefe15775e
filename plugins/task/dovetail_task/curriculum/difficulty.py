"""Curriculum `difficulty`: prompts that the policy solves about half of the time are drawn more often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import attrs
import numpy as np
from annotated_types import Gt, Interval
from jaxtyping import Float, Int

from dovetail.ranges import in_range

State = Mapping[str, np.ndarray]


@attrs.frozen(kw_only=True)
class Difficulty:
    """Prompts whose pass rate is near a target are drawn more often, and every prompt still gets its turn.

        P(i) ∝ exp( -|r_i - r*| / τ )
        r_i ← d·r_i + (1 - d)·p_i,   p_i = mean_n [s_in ≥ success_at]

    with s_in the score of completion n of prompt i; r_i is updated whenever prompt i has been completed, and begins as
    the first p_i. Groups in which all completions succeed or all fail have no group-relative advantage, and for scores
    of 0 and 1 the variance of a group is largest at r* = 1/2.

    P and r* = 1/2 are those of Sun et al. 2025, *Improving Data Efficiency for LLM Reinforcement Fine-tuning Through
    Difficulty-targeted Online Data Selection and Rollout Replay*. Kimi Team 2025, *Kimi k1.5*, section 2.3.4, samples
    in proportion to 1 - r_i: the target is 0, and the weight falls in a straight line. Setting a share of the draws
    aside for the prompts that have waited longest follows Jiang et al. 2021, *Prioritized Level Replay*, equation 3.

    A step draws without replacement, unless it asks for more prompts than there are. A share ρ of its m prompts,
    rounded up or down at random, goes to those that have waited longest, so that none of N prompts waits much longer
    than N / (ρ·m) steps. A prompt that has never been scored counts as being on target.

    Args:
        target: r*.
        temperature: τ, in units of the pass rate; the smaller, the sharper. At a distance of τ from the target a prompt
            has 37 % of the chance of one that is on it.
        decay: d, the share of the old estimate that stays. The policy changes, so old pass rates go out of date.
        exploration: ρ, the share of the draws for prompts that have waited longest. With 0, a prompt far from the
            target may in effect never be drawn again.
        success_at: the score from which a completion succeeds, as in `pass_rate_band`.

    Departures:
        Sun et al. estimate the pass rates of prompts from their similarity to a reference set that is completed anew.
        Here a prompt's estimate is as old as its last turn and costs nothing; `exploration` keeps it up to date.

    Reports `estimate`, the mean of r_i over the prompts of a step before it was updated (prompts scored for the first
    time are left out), and `seen`, the share of all prompts that have been scored.

    >>> curriculum, rng = Difficulty(temperature=0.05, exploration=0.0), np.random.default_rng(0)
    >>> state, everything = curriculum.init(3), np.arange(3)
    >>> state, _ = curriculum.update(state, everything, np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]))
    >>> print(state["rate"], curriculum.choose(state, 1, rng))
    [0.  0.5 1. ] [1]
    """

    target: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.5, validator=in_range)
    temperature: Annotated[float, Gt(0)] = attrs.field(default=0.2, validator=in_range)
    decay: Annotated[float, Interval(ge=0, lt=1)] = attrs.field(default=0.5, validator=in_range)
    exploration: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.1, validator=in_range)
    success_at: float = 1.0

    def init(self, examples: int) -> dict[str, np.ndarray]:
        """Return the initial state, in which no prompt has been drawn or scored."""
        return {
            "rate": np.zeros(examples, np.float32),
            "scored": np.zeros(examples, bool),
            "last": np.zeros(examples, np.int32),
            "draws": np.zeros((), np.int32),
        }

    def choose(self, state: State, count: int, rng: np.random.Generator) -> Int[np.ndarray, "prompt"]:
        """Return the indices of the next prompts."""
        examples = len(state["rate"])
        whole, count = divmod(count, examples)
        rounds = [rng.permutation(examples) for _ in range(whole)]
        explored = int(self.exploration * count + rng.random())
        # equal waiting times are settled at random, or the first prompts of the file would always be the first to come
        waited = np.lexsort((rng.random(examples), state["last"]))[:explored]
        # adding Gumbel noise to log-probabilities and taking the largest draws without replacement
        keys = self._log_weights(state) + rng.gumbel(size=examples)
        keys[waited] = -np.inf
        drawn = np.argsort(-keys, kind="stable")[: count - explored]
        return np.concatenate([*rounds, waited, drawn])

    def _log_weights(self, state: State) -> Float[np.ndarray, "example"]:
        distance = np.abs(state["rate"].astype(np.float64) - self.target)
        return np.where(state["scored"], -distance / self.temperature, 0.0)

    def update(
        self, state: State, chosen: Int[np.ndarray, "prompt"], scores: Float[np.ndarray, "prompt n"]
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Return the next state, and metrics about the prompts that were drawn."""
        known = np.unique(chosen)[state["scored"][np.unique(chosen)]]
        metrics = {"estimate": float(state["rate"][known].mean())} if len(known) else {}
        rate, scored, last = (state[name].copy() for name in ("rate", "scored", "last"))
        draws = state["draws"] + np.int32(1)
        last[chosen] = draws
        for prompt, of_prompt in zip(chosen, scores, strict=True):
            given = of_prompt[~np.isnan(of_prompt)]
            if len(given):
                passed = np.mean(given >= self.success_at)
                rate[prompt] = self.decay * rate[prompt] + (1 - self.decay) * passed if scored[prompt] else passed
                scored[prompt] = True
        state = {"rate": rate, "scored": scored, "last": last, "draws": np.asarray(draws)}
        return state, metrics | {"seen": float(scored.mean())}

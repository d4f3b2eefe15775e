"""What an A/B test says: better, worse, equivalent or undecided."""

from __future__ import annotations

import math
from typing import Literal

import attrs
import numpy as np
from jaxtyping import Float

from dovetail.ab import paired
from dovetail.ab.paired import Interval

Verdict = Literal["better", "worse", "equivalent", "undecided"]


@attrs.frozen(kw_only=True)
class Comparison:
    """One arm against the control on one metric, over the seeds that both finished.

    Attributes:
        pairs: seeds that both finished.
        mean: mean difference, positive is better.
        deviation: standard deviation of the differences; NaN for a single pair.
        t: paired t interval at 1 − alpha.
        bca: bootstrap interval at 1 − alpha, for comparison.
        iqm: difference of the interquartile means.
        improvement: probability that a run of the arm beats a run of the control.
        p: exact sign-flip p-value, two-sided, not adjusted.
        adjusted_p: the same after Holm over the arms.
        correlation: of the two arms over the seeds.
        detectable: least true difference found with 80 % power at this number of pairs and deviation.
        needed: pairs needed in all for 80 % power at the minimum effect; None if there is none to name.
        verdict: see `decide`.
    """

    pairs: int
    mean: float
    deviation: float
    t: Interval
    bca: Interval
    iqm: float
    improvement: float
    p: float
    adjusted_p: float
    correlation: float
    detectable: float
    needed: int | None
    verdict: Verdict


def decide(mean: float, adjusted_p: float, equivalence: Interval, *, alpha: float, min_effect: float) -> Verdict:
    """Return the verdict.

    * **equivalent**: the 1 − 2·alpha interval lies within ±min_effect, which is two one-sided t-tests at `alpha`
      (Schuirmann 1987). That holds even if the difference is significant: it is real, and too small to matter.
    * **better**, **worse**: not equivalent, and the adjusted sign-flip p-value is at most `alpha`.
    * **undecided**: the data do not tell.

    >>> decide(0.1, 0.03, Interval(0.02, 0.2), alpha=0.05, min_effect=0.01)
    'better'
    """
    if min_effect > 0 and equivalence.inside(min_effect):
        return "equivalent"
    if adjusted_p <= alpha and mean != 0:
        return "better" if mean > 0 else "worse"
    return "undecided"


def compare(
    control: Float[np.ndarray, "seed"],
    arms: dict[str, Float[np.ndarray, "seed"]],
    *,
    higher_is_better: bool = True,
    min_effect: float = 0.0,
    alpha: float = 0.05,
) -> dict[str, Comparison]:
    """Compare each arm with the control.

    Args:
        control: the metric of the control's run of each seed; NaN where it crashed.
        arms: the same of each arm, in the same order of seeds.
        higher_is_better: the direction of the metric.
        min_effect: the least difference that matters, in the metric's unit.
        alpha: level of the test; at an interim look, that look's.

    Returns:
        By arm. A seed that either run of a pair has lost is left out of that pair only.

    Raises:
        ValueError: if an arm shares no finished seed with the control.
    """
    sign = 1.0 if higher_is_better else -1.0
    both = {name: ~(np.isnan(control) | np.isnan(values)) for name, values in arms.items()}
    for name, there in both.items():
        if not there.any():
            raise ValueError(f"arm {name} and the control have finished no seed in common")
    differences = {name: sign * (values - control)[both[name]] for name, values in arms.items()}
    p_values = np.array([paired.sign_flip_p(d) for d in differences.values()])
    found = {}
    for (name, d), p, adjusted in zip(differences.items(), p_values, paired.holm(p_values), strict=True):
        arm, base = sign * arms[name][both[name]], sign * control[both[name]]
        deviation = float(np.std(d, ddof=1)) if len(d) > 1 else math.nan
        known = not math.isnan(deviation)
        found[name] = Comparison(
            pairs=len(d),
            mean=float(d.mean()),
            deviation=deviation,
            t=paired.t_interval(d, 1 - alpha),
            bca=paired.bca_interval(d, 1 - alpha),
            iqm=paired.iqm(arm) - paired.iqm(base),
            improvement=paired.improvement_probability(arm, base),
            p=float(p),
            adjusted_p=float(adjusted),
            correlation=paired.correlation(arm, base),
            detectable=paired.detectable_effect(deviation, len(d), alpha) if known else math.inf,
            needed=paired.pairs_needed(min_effect, deviation, alpha) if known else None,
            verdict=decide(
                float(d.mean()),
                float(adjusted),
                paired.t_interval(d, 1 - 2 * alpha),
                alpha=alpha,
                min_effect=min_effect,
            ),
        )
    return found

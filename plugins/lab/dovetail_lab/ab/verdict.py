"""What an A/B test says: better, worse, equivalent or undecided."""

from __future__ import annotations

import math
from typing import Literal

import attrs
import numpy as np
from jaxtyping import Float
from scipy import stats

from dovetail_lab.ab import paired
from dovetail_lab.ab.paired import Interval, Pairs
from dovetail_lab.ab.sequential import Looks, overall_p, pocock_level
from dovetail_lab.ab.symmetry import Symmetry, symmetry

Verdict = Literal["better", "worse", "equivalent", "identical", "undecided"]
Lost = Literal["leave_out", "worst"]
"""What a run without a result counts as."""


@attrs.frozen(kw_only=True)
class Comparison:
    """One arm against the control on one metric, over the seeds that both finished. Positive is better throughout.

    Attributes:
        pairs: seeds that both finished.
        control: mean of the control over these seeds, as measured.
        arm: mean of the arm.
        mean: mean difference.
        deviation: standard deviation of the differences; NaN for a single pair.
        confidence: of the two intervals: 95 %, or what a level per look leaves.
        t: paired t interval.
        bca: bootstrap interval, for comparison.
        iqm: difference of the interquartile means.
        improvement: probability that a run of the arm beats a run of the control.
        p: exact sign-flip p-value, two-sided, not adjusted.
        adjusted_p: the same after the planned looks, and after Holm over the arms.
        equivalence_p: p-value of the hypothesis that the arms differ by the minimum effect or more, adjusted alike.
        correlation: of the two arms over the seeds.
        detectable: least true difference found with 80 % power at this number of pairs and deviation.
        needed: pairs needed in all for 80 % power at the minimum effect; None if there is none to name.
        symmetry: signs that the differences are not symmetric, which the test assumes.
        verdict: see `decide`; `identical` is for who knows more than the results to say.
    """

    pairs: int
    control: float
    arm: float
    mean: float
    deviation: float
    confidence: float
    t: Interval
    bca: Interval
    iqm: float
    improvement: float
    p: float
    adjusted_p: float
    equivalence_p: float
    correlation: float
    detectable: float
    needed: int | None
    symmetry: Symmetry
    verdict: Verdict


def decide(mean: float, adjusted_p: float, equivalence_p: float, alpha: float = 0.05) -> Verdict:
    """Return the verdict.

    * **equivalent**: two one-sided tests find the difference to be within ±min_effect. That holds even if the
      difference is significant: it is real, and too small to matter.
    * **better**, **worse**: not equivalent, and the adjusted sign-flip p-value is at most `alpha`.
    * **undecided**: the data do not tell.

    >>> decide(0.1, 0.03, 1.0), decide(0.1, 0.03, 0.04), decide(0.1, 0.2, 0.3)
    ('better', 'equivalent', 'undecided')
    """
    if equivalence_p <= alpha:
        return "equivalent"
    if adjusted_p <= alpha and mean != 0:
        return "better" if mean > 0 else "worse"
    return "undecided"


def equivalence_p(differences: Pairs, min_effect: float) -> float:
    """Return the p-value of two one-sided t-tests of the hypothesis |difference| ≥ min_effect (Schuirmann 1987).

    It is at most α if and only if the 1 − 2α interval lies within ±min_effect. Never below 2⁻ⁿ, the chance that n
    differences which are symmetric about ±min_effect are all on one side of it: few pairs that happen to be equal, such
    as runs which have not learnt anything yet, prove nothing. 1 without a minimum effect, or for a single pair.

    >>> equivalence_p(np.array([0.01, -0.01, 0.0, 0.01, 0.0]), 0.1), equivalence_p(np.zeros(3), 0.1)
    (0.03125, 0.125)
    """
    n, mean = len(differences), abs(float(np.mean(differences)))
    if n < 2 or min_effect <= 0 or mean >= min_effect:
        return 1.0
    error = float(np.std(differences, ddof=1)) / math.sqrt(n)
    p = float(stats.t.sf((min_effect - mean) / error, n - 1)) if error else 0.0
    return max(p, 2.0**-n)


def results_of_pairs(
    control: Float[np.ndarray, "seed"], arm: Float[np.ndarray, "seed"], sign: float, lost: Lost
) -> tuple[Pairs, Pairs]:
    """Return the results of control and arm, one each for every pair that counts.

    `leave_out` takes the pairs of which both have a result. It is blind to crashes: an arm whose worst runs crash is
    left with its better ones. With `worst` a lost run has the worst result that either arm has on any seed. That is the
    same whichever arm of a pair is called which, so the sign-flip test stays exact where arms crash alike, and an arm
    that crashes more pays for it.

    Args:
        control: by seed, not finite where the run is lost.
        arm: the same of the arm.
        sign: 1 if higher is better, else −1.
        lost: the rule.
    """
    both = np.isfinite(control) & np.isfinite(arm)
    known = np.concatenate([control[np.isfinite(control)], arm[np.isfinite(arm)]])
    if lost == "leave_out" or not len(known):
        return control[both], arm[both]
    worst = sign * float(np.min(sign * known))
    return np.where(np.isfinite(control), control, worst), np.where(np.isfinite(arm), arm, worst)


def compare(
    control: Float[np.ndarray, "seed"],
    arms: dict[str, Float[np.ndarray, "seed"]],
    *,
    higher_is_better: bool = True,
    min_effect: float = 0.0,
    alpha: float = 0.05,
    looks: Looks = 1,
    lost: Lost = "leave_out",
) -> dict[str, Comparison]:
    """Compare each arm with the control.

    Args:
        control: the metric of the control's run of each seed; not finite where it is lost.
        arms: the same of each arm, in the same order of seeds.
        higher_is_better: the direction of the metric.
        min_effect: the least difference that matters, in the metric's unit.
        alpha: chance of a false `better` or `worse` of any arm, over all planned looks.
        looks: that are planned, this one among them: how many, or after how many pairs each.
        lost: what becomes of a seed of which a run is lost; see `results_of_pairs`.

    Returns:
        By arm.

    Raises:
        ValueError: if an arm shares no finished seed with the control.
    """
    sign = 1.0 if higher_is_better else -1.0
    results = {name: results_of_pairs(control, values, sign, lost) for name, values in arms.items()}
    for name, (there, _) in results.items():
        if not len(there):
            raise ValueError(f"arm {name} and the control have finished no seed in common")
    differences = {name: sign * (arm - base) for name, (base, arm) in results.items()}
    p_values = [paired.sign_flip_p(d) for d in differences.values()]
    adjusted = paired.holm(np.array([overall_p(p, looks) for p in p_values]))
    one_sided = [min(2 * equivalence_p(d, min_effect), 1.0) for d in differences.values()]
    alike = paired.holm(np.array([overall_p(p, looks) / 2 if p < 1 else 1.0 for p in one_sided]))
    level, hardest = pocock_level(looks, alpha), pocock_level(looks, alpha / len(arms))
    found = {}
    for index, (name, d) in enumerate(differences.items()):
        base, arm = results[name]
        deviation = float(np.std(d, ddof=1)) if len(d) > 1 else math.nan
        known = not math.isnan(deviation)
        found[name] = Comparison(
            pairs=len(d),
            control=float(base.mean()),
            arm=float(arm.mean()),
            mean=float(d.mean()),
            deviation=deviation,
            confidence=1 - level,
            t=paired.t_interval(d, 1 - level),
            bca=paired.bca_interval(d, 1 - level),
            iqm=sign * (paired.iqm(arm) - paired.iqm(base)),
            improvement=paired.improvement_probability(sign * arm, sign * base),
            p=p_values[index],
            adjusted_p=float(adjusted[index]),
            equivalence_p=float(alike[index]),
            correlation=paired.correlation(arm, base),
            detectable=paired.detectable_effect(deviation, len(d), hardest) if known else math.inf,
            needed=paired.pairs_needed(min_effect, deviation, hardest) if known else None,
            symmetry=symmetry(d),
            verdict=decide(float(d.mean()), float(adjusted[index]), float(alike[index]), alpha),
        )
    return found

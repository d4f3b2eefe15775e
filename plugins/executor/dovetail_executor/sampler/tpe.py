"""The tree-structured Parzen estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import attrs
from annotated_types import Ge

from dovetail_executor.sampler._optuna import OptunaStudy, load
from dovetail_lab.sweep import Distribution


@attrs.frozen(kw_only=True)
class Tpe:
    """Optuna's TPE: the candidate that is most likely under the good settings so far. Needs the extra `optuna`.

        θ = argmax_{θ ~ l}  l(θ) / g(θ)

    where l and g are kernel density estimates of the better settings so far and of the others. Bergstra et al. 2011,
    *Algorithms for Hyper-Parameter Optimization*, section 4; Watanabe 2023, *Tree-Structured Parzen Estimator*.

    Args:
        startup: settings drawn at random before the estimates are used.
        candidates: how many θ are drawn from l for each setting.
    """

    learns: ClassVar[bool] = True

    startup: Annotated[int, Ge(1)] = 10
    candidates: Annotated[int, Ge(1)] = 24

    def open(self, space: Mapping[str, Distribution], *, draws: int, seed: int, total_steps: int) -> OptunaStudy:
        """Begin a study.

        Raises:
            ConfigError: if Optuna is not installed.
        """
        optuna = load("sampler 'tpe'")
        return OptunaStudy.open(
            optuna,
            space,
            draws,
            lambda: optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=self.startup, n_ei_candidates=self.candidates
            ),
        )

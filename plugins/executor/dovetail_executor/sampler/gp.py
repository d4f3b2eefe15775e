"""Bayesian optimisation with a Gaussian process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import attrs
from annotated_types import Ge

from dovetail_executor.sampler._optuna import OptunaStudy, load
from dovetail_lab.sweep import Distribution


@attrs.frozen(kw_only=True)
class Gp:
    """Optuna's Gaussian process: the setting with the greatest expected improvement.

        θ = argmax_θ  log E[ max(f(θ) - f*, 0) ],  f ~ GP(0, k_Matérn-5/2)

    where f* is the best result so far. Ament et al. 2023, *Unexpected Improvements to Expected Improvement*.
    Needs the extra `optuna`, and PyTorch, which the extra `transformers` has.

    Args:
        startup: settings drawn at random before the process is fitted.
    """

    learns: ClassVar[bool] = True

    startup: Annotated[int, Ge(1)] = 10

    def open(self, space: Mapping[str, Distribution], *, draws: int, seed: int, total_steps: int) -> OptunaStudy:
        """Begin a study.

        Raises:
            ConfigError: if Optuna or PyTorch is not installed.
        """
        optuna = load("sampler 'gp'", "torch")
        return OptunaStudy.open(
            optuna,
            space,
            draws,
            lambda: optuna.samplers.GPSampler(
                seed=seed, n_startup_trials=self.startup, warn_independent_sampling=False
            ),
        )

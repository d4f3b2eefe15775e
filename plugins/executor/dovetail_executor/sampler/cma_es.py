"""The covariance matrix adaptation evolution strategy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import attrs
from annotated_types import Ge

from dovetail.errors import ConfigError, listing
from dovetail_executor.sampler._optuna import OptunaStudy, load
from dovetail_lab.sweep import Distribution


@attrs.frozen(kw_only=True)
class CmaEs:
    """Optuna's CMA-ES: draws from a normal distribution that moves towards the better half of a generation.
    Needs the extra `optuna`.

        θ ~ N(m, σ²·C)

    with mean m, step size σ and covariance C, learnt from the ranks of the last generation. For two numbers or more; it
    knows no choices. Hansen 2016, *The CMA Evolution Strategy: A Tutorial*.

    Args:
        population: settings of a generation; None: 4 + ⌊3·ln d⌋ for d keys.
    """

    learns: ClassVar[bool] = True

    population: Annotated[int, Ge(2)] | None = None

    def open(self, space: Mapping[str, Distribution], *, draws: int, seed: int, total_steps: int) -> OptunaStudy:
        """Begin a study.

        Raises:
            ConfigError: if Optuna or cmaes is not installed, or the space has a choice or fewer than two keys.
        """
        choices = [key for key, form in space.items() if form.form == "choice"]
        if choices or len(space) < 2:
            why = f"not {listing(choices)}, a choice" if choices else f"the space has {len(space)}"
            raise ConfigError(f"sampler 'cma_es' searches two numbers or more: {why}. Use 'tpe', 'gp' or 'random'")
        optuna = load("sampler 'cma_es'", "cmaes")
        return OptunaStudy.open(
            optuna,
            space,
            draws,
            lambda: optuna.samplers.CmaEsSampler(seed=seed, popsize=self.population, warn_independent_sampling=False),
        )

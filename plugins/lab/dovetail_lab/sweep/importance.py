"""Which parameters of a sweep matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dovetail.errors import ConfigError
from dovetail.extras import needs
from dovetail_lab.sweep.tables import Setting

LEAST: Final = 10
"""Settings below which nothing is said."""
LOGARITHMIC: Final = 20.0


def importance(rows: Sequence[Setting], goal: str) -> Mapping[str, float]:
    """Return the share of each varied parameter in telling the best tenth of the settings from all others.

    PED-ANOVA: the Pearson divergence of the density of a parameter among the best from its density among all,
    normalised to a sum of one. Watanabe et al. 2023, *PED-ANOVA*, as in Optuna. Numbers that span a factor of 20 or
    more are taken by their logarithms.

    Raises:
        ConfigError: if there are too few settings, or Optuna is not installed.
    """
    known = [(row.trials[0].settings, row.mean) for row in rows if row.mean is not None]
    keys = [
        key for key in dict.fromkeys(key for each, _ in known for key in each) if all(key in each for each, _ in known)
    ]
    keys = [key for key in keys if len({repr(each[key]) for each, _ in known}) > 1]
    if len(known) < LEAST or not keys:
        raise ConfigError(
            f"Importance needs {LEAST} settings that have come to an end and a parameter that all of them have; there"
            f" {'is' if len(known) == 1 else 'are'} {len(known)}."
        )
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(needs("Importance", "Optuna", "optuna")) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize" if goal == "max" else "minimize")
    columns = {key: _column(optuna, [each[key] for each, _ in known]) for key in keys}
    for place, (_, mean) in enumerate(known):
        params = {key: values[place] for key, (values, _) in columns.items()}
        forms = {key: form for key, (_, form) in columns.items()}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=forms, value=mean))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _column(optuna: Any, values: Sequence[Any]) -> tuple[list[Any], Any]:
    """Return values as Optuna takes them, with their distribution."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        low, high = float(min(values)), float(max(values))
        log = low > 0 and high / low >= LOGARITHMIC
        return [float(value) for value in values], optuna.distributions.FloatDistribution(low, high, log=log)
    options = list(dict.fromkeys(map(repr, values)))
    places = [options.index(repr(value)) for value in values]
    return places, optuna.distributions.CategoricalDistribution(tuple(range(len(options))))

"""What the samplers of Optuna have in common."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import attrs

from dovetail.errors import ConfigError
from dovetail.extras import needs
from dovetail_lab.kinds import Proposal, Result
from dovetail_lab.sweep import Distribution
from dovetail_lab.sweep.distributions import round_number


def load(what: str, *others: str) -> ModuleType:
    """Import Optuna and what one of its samplers needs in addition.

    Raises:
        ConfigError: if one of them is not installed, with the command that installs it.
    """
    try:
        for name in others:
            importlib.import_module(name)
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        extra = "transformers" if "torch" in str(error) else "optuna"
        raise ConfigError(
            needs(what, "PyTorch" if extra == "transformers" else "Optuna", extra) + f" ({error})"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def distribution(optuna: ModuleType, form: Distribution) -> Any:
    """Return Optuna's word for a distribution; options are told apart by their place, since they may be tuples."""
    if form.form == "choice":
        return optuna.distributions.CategoricalDistribution(tuple(range(len(form.arguments))))
    if form.form == "int":
        return optuna.distributions.IntDistribution(*form.arguments)
    return optuna.distributions.FloatDistribution(*map(float, form.arguments), log=form.form == "loguniform")


def value_of(form: Distribution, found: Any) -> Any:
    """Return a value as a sweep writes it."""
    if form.form == "choice":
        return form.arguments[found]
    return found if form.form == "int" else round_number(found)


@attrs.define(kw_only=True)
class OptunaStudy:
    """A study of Optuna's in memory: what is asked and told is kept by the sweep, which replays it.

    Attributes:
        optuna: the module.
        space: key -> distribution.
        draws: how many settings may be asked for.
        study: Optuna's.
    """

    optuna: ModuleType
    space: Mapping[str, Distribution]
    draws: int
    study: Any
    trials: list[Any] = attrs.field(factory=list)

    @classmethod
    def open(
        cls, optuna: ModuleType, space: Mapping[str, Distribution], draws: int, make: Callable[[], Any]
    ) -> OptunaStudy:
        """Begin a study with a sampler."""
        study = optuna.create_study(direction="maximize", sampler=make())
        return cls(optuna=optuna, space=space, draws=draws, study=study)

    def ask(self) -> Proposal | None:
        """Ask Optuna, as long as there are draws."""
        if len(self.trials) == self.draws:
            return None
        trial = self.study.ask({key: distribution(self.optuna, form) for key, form in self.space.items()})
        self.trials.append(trial)
        return Proposal(values={key: value_of(form, trial.params[key]) for key, form in self.space.items()})

    def tell(self, number: int, result: Result) -> None:
        """Tell Optuna: a value, a curve that was cut short, or a failure."""
        states = self.optuna.trial.TrialState
        for step, value in result.curve:
            self.trials[number].report(value, step)
        if result.value is not None:
            self.study.tell(self.trials[number], result.value)
        else:
            self.study.tell(self.trials[number], state=states.PRUNED if result.curve else states.FAIL)

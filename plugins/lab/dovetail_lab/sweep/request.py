"""A sweep as somebody asks for it, on the command line or in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import attrs

from dovetail.config import Choice
from dovetail.config.types import Mismatch, literal
from dovetail.errors import ConfigError, listing
from dovetail.registry import Component
from dovetail_lab.kinds import Proposal, Result, Sampler, Study
from dovetail_lab.settings import Sweep
from dovetail_lab.sweep.distributions import Distribution
from dovetail_lab.sweep.space import Exclusion, Point, Space, parse_seeds
from dovetail_lab.sweep.trial import Planned, plan_trials

CHOSEN: Final = ("sweep.sampler", "sweep.executor", "sweep.early_stopping")


@attrs.frozen(kw_only=True)
class _Named:
    """A study whose errors, and answers that are no proposals, are said to be the sampler's."""

    component: Component
    study: Study
    space: Mapping[str, Distribution]

    def ask(self) -> Proposal | None:
        """Return the next proposal."""
        with self.component.named():
            proposal = self.study.ask()
        if proposal is not None and not isinstance(proposal, Proposal):
            wanted = "return a dovetail_lab.kinds.Proposal, or None for the end"
            raise self.component.wrong(f"answered {proposal!r:.80} to `ask`; {wanted}")
        if proposal is not None:
            self._check(proposal.values)
        return proposal

    def _check(self, values: Mapping[str, Any]) -> None:
        """Refuse what is not a point of the space, before it becomes a trial that nobody asked for."""
        if values.keys() != self.space.keys():
            how = f"proposes values for {listing(values)}; there are {listing(self.space)} to choose"
            raise self.component.wrong(how)
        for key, value in values.items():
            try:
                literal(value)
            except Mismatch as error:  # such as a number of NumPy
                raise self.component.wrong(f"proposes for {key}: {error}") from error
            if not self.space[key].allows(value):
                raise self.component.wrong(f"proposes {key}={value!r:.80}, which is not in {self.space[key]}")

    def tell(self, number: int, result: Result) -> None:
        """Take the result of a proposal."""
        with self.component.named():
            self.study.tell(number, result)


@attrs.frozen(kw_only=True)
class Request:
    """What is asked for.

    Attributes:
        path: the gin file.
        overrides: settings that all trials have.
        settings: what is tried, and how it runs.
        choices: the sampler, the executor, and the rule for early stopping if there is one.
        folder: the sweep's.
        extend: allow trials in addition to those that are in the folder.
    """

    path: Path
    overrides: tuple[str, ...] = attrs.field(converter=tuple)
    settings: Sweep
    choices: Mapping[str, Choice]
    folder: Path
    extend: bool = False

    @property
    def sampler_name(self) -> str:
        """The name of the sampler."""
        return self.choices["sweep.sampler"].component.name

    def sampler(self) -> Sampler:
        """Return the sampler with its parameters."""
        return cast("Sampler", self.choices["sweep.sampler"].bind())

    def open(self, space: Space, *, total_steps: int) -> Study:
        """Return a study of a space; what it does wrong is said to be the sampler's."""
        component = self.choices["sweep.sampler"].component
        with component.named():
            study = self.sampler().open(space.random, draws=space.draws, seed=space.draw_seed, total_steps=total_steps)
        return _Named(component=component, study=study, space=space.random)

    def space(self) -> Space:
        """Return the space that the settings describe; the draws of a sampler that does not learn are in it.

        Raises:
            ConfigError: if a sampler is named that has nothing to choose.
        """
        settings, sampler = self.settings, self.choices["sweep.sampler"]
        space = Space(
            grid=settings.grid,
            zip=settings.zip,
            random={key: Distribution.parse(text, key) for key, text in settings.random.items()},
            draws=settings.draws,
            draw_seed=settings.draw_seed,
            seeds=() if settings.seeds is None else parse_seeds(settings.seeds),
            exclude=tuple(map(Exclusion.parse, settings.exclude)),
        )
        if self.sampler_name == "random":
            return space
        learns = self.sampler().learns
        if not space.random:
            if learns:  # which may not have a grid beside it, and says so first
                return space
            raise ConfigError(nothing_to_choose(self.sampler_name))
        values = ", ".join(f"{name}={literal(value)}" for name, value in sorted(sampler.params.items()))
        space = attrs.evolve(space, sampler=f"{self.sampler_name}({values})")
        if learns:
            return space
        study = self.open(space, total_steps=0)
        asked = [study.ask() for _ in range(space.draws)]
        return attrs.evolve(space, drawn=tuple(each.values for each in asked if each))

    def plan(self, points: Iterable[Point], **options: Any) -> Planned:
        """Read the config at each point; see `plan_trials`."""
        # also what options of the command chose, or parameters of it would seem to be unused
        chosen = [f"{slot}='{self.choices[slot].component.qualified_name}'" for slot in CHOSEN if slot in self.choices]
        return plan_trials(self.path, (*self.overrides, *chosen), points, **options)

    def about(self, space: Space) -> dict[str, Any]:
        """Return what is recorded of the sweep beside its trials."""
        return {
            "config": str(self.path),
            "set": list(self.overrides),
            "space": space.describe(),
            "metric": self.settings.metric,
            "goal": self.settings.goal,
        }


def nothing_to_choose(sampler: str) -> str:
    """Return what is said if a sampler is named, and no setting has a distribution."""
    return f"sampler '{sampler}' has nothing to choose; write --random 20 KEY=uniform(0,1), or sweep.random"

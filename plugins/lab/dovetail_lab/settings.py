"""The sections `sweep` and `ab` of a config file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import attrs
from annotated_types import Ge, Gt, Lt

from dovetail.config import chosen
from dovetail.ranges import in_range


@attrs.frozen(kw_only=True)
class Sweep:
    """What `dovetail sweep` tries, and how; see `docs/sweeps.md`.

    Attributes:
        grid: values of each key; every combination is tried.
        zip: values of several keys that advance together.
        random: the distribution of each key that is drawn, such as `loguniform(1e-5,1e-3)`.
        draws: how many are drawn.
        draw_seed: the seed of the draws.
        seeds: the seeds of each setting: a number, `2:5` or `0,7`; None takes the config's own.
        exclude: conditions; trials that meet all of one are left out.
        max_trials: a larger sweep is refused.
        jobs: trials that run at a time.
        vectorize: trials that one process trains together, if they differ in seeds and traced numbers only.
        retry: how often a failed trial is run again.
        timeout: the longest that a trial may take, such as `30m` or `2h`.
        fail_fast: whether the first failed trial ends the sweep.
        metric: what is compared.
        goal: whether a higher or a lower value is better.
    """

    # what is tried
    grid: dict[str, tuple[Any, ...]] = attrs.field(default={})
    zip: dict[str, tuple[Any, ...]] = attrs.field(default={})
    random: dict[str, str] = attrs.field(default={})
    draws: Annotated[int, Ge(0)] = attrs.field(default=0, validator=in_range)
    draw_seed: int = 0
    sampler: str = chosen("sampler", "random")
    seeds: str | int | tuple[int, ...] | None = None
    exclude: tuple[str, ...] = ()
    max_trials: Annotated[int, Ge(1)] = attrs.field(default=1000, validator=in_range)

    # how it runs
    executor: str = chosen("executor", "local")
    jobs: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    vectorize: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    retry: Annotated[int, Ge(0)] = attrs.field(default=0, validator=in_range)
    timeout: str | None = None
    fail_fast: bool = False

    # what is compared
    metric: str = "eval/accuracy"
    goal: Literal["max", "min"] = "max"
    early_stopping: str | None = chosen("early_stopping", None)


@attrs.frozen(kw_only=True)
class AB:
    """What `dovetail ab` registers; see `docs/ab.md`. How the runs are made is `sweep`'s to say.

    Attributes:
        arms: the overrides of each arm, by its name.
        control: the arm that the others are compared with; None takes the first.
        seeds: one pair of runs for each: a number, `2:5` or `0,7`.
        metric: the primary metric.
        goal: whether a higher or a lower value is better.
        window: the values of which a run's result is the mean: `last`, `last5`, `last10%`, `all`.
        min_effect: the smallest difference that matters, in the metric's unit.
        alpha: the probability of a false winner over all arms and looks.
        lost: what happens to a run without a result: its pair is left out, or it counts as the worst.
        sequential: the looks at the data: `fixed`, or `pocock:4`.
        deviation: the standard deviation of the differences in a pilot, for the planned power.
    """

    arms: dict[str, tuple[str, ...]] = attrs.field(default={})
    control: str | None = None
    seeds: str | int | tuple[int, ...] = 8
    metric: str = "eval/accuracy"
    goal: Literal["max", "min"] = "max"
    window: str = "last10%"
    min_effect: Annotated[float, Ge(0)] = attrs.field(default=0.0, validator=in_range)
    alpha: Annotated[float, Gt(0), Lt(1)] = attrs.field(default=0.05, validator=in_range)
    lost: Literal["leave_out", "worst"] = "leave_out"
    sequential: str = "fixed"
    deviation: Annotated[float, Gt(0)] | None = attrs.field(default=None, validator=in_range)

"""The sections `sweep` and `ab` of a config file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import attrs
from annotated_types import Ge, Gt, Lt

from dovetail.config import chosen
from dovetail.ranges import in_range


@attrs.frozen(kw_only=True)
class Sweep:
    """What `dovetail sweep` tries, and how; see `docs/sweeps.md`."""

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
    """What `dovetail ab` registers; see `docs/ab.md`. How the runs are made is `sweep`'s to say."""

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

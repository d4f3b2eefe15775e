"""Many runs of one config: what to try, where each stands, who runs it.

    space = Space(grid={"train.lr": (1e-4, 1e-3)}, seeds=(0, 1))
    planned = plan_trials("mine.gin", ["train.steps=50"], space.points())  # every config read and planned, or refused
    store = Store.create(Path("sweeps/mine"), planned, {"space": space.describe()})  # or opened, if it is the same
    drive(store, executor, Terms(jobs=2, retry=1), watch=Quiet(),
          prepare=lambda trial: store.prepare(trial, planned.configs[trial.id]))
    for trial in store.trials:
        print(trial.label, store.state(trial).status, store.curve(trial, "eval/accuracy")[-1:])

* `Space`, `Point(overrides, seed)`: what is tried. Anything that makes points will do in place of a space.
* `Trial(overrides, seed, id, group)`, `plan_trials(path, sets, points) -> Planned`: the id is the run id.
* `Store`: the folder. `Store.open(path)` reads a sweep, also while it runs: `trials`, `state(trial)`, `curve(trial,
  metric)`, and `folder(trial)`, which is a run folder.
* `drive(store, executor, terms, ...)`: runs what is not at an end. `executor = choice.bind()` of a component of kind
  `executor`; `Terms(in_order=True)` takes the trials in the order of the store, so that a caller can interleave them.
* `run_job(folder, ids)`: what a worker calls, for authors of executors.
"""

from __future__ import annotations

from dovetail_lab.sweep.distributions import Distribution
from dovetail_lab.sweep.driver import drive
from dovetail_lab.sweep.space import Exclusion, Point, Space, parse_axes, parse_random, parse_seeds
from dovetail_lab.sweep.state import FINAL, State, Status
from dovetail_lab.sweep.stopping import Stopping
from dovetail_lab.sweep.store import Store
from dovetail_lab.sweep.terms import Quiet, Terms, TrialFailed, Watch, count
from dovetail_lab.sweep.trial import Planned, Trial, plan_trials
from dovetail_lab.sweep.worker import run_job

__all__ = [
    "FINAL",
    "Distribution",
    "Exclusion",
    "Planned",
    "Point",
    "Quiet",
    "Space",
    "State",
    "Status",
    "Stopping",
    "Store",
    "Terms",
    "Trial",
    "TrialFailed",
    "Watch",
    "count",
    "drive",
    "parse_axes",
    "parse_random",
    "parse_seeds",
    "plan_trials",
    "run_job",
]

"""Workers as `dovetail_executor.executor.local` starts them, but without training: the learning rate determines the behaviour.

Run as a script, this file is the worker; `drive` runs a driver for tests that kill it.
"""

import itertools
import json
import os
import signal
import sys
import time
import types
from collections import Counter
from pathlib import Path

from dovetail.config import load, run_id
from dovetail.errors import RunError
from dovetail.interruptions import interruptions
from dovetail.registry import plugin_manager
from dovetail_executor.executor.local import LocalWorkers
from dovetail_lab.sweep import Planned, Point, Quiet, Space, Store, Terms, Trial, drive

GOOD, SLOW, HANGS, FAILS, DIES, DIES_ONCE, CRASHES = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7
STEPS = 5
ENOUGH = "enough"
"""A file in the folder of a sweep; a slow trial goes on until it is there."""


def train(config, folder: Path) -> None:
    """Write the same files to a folder as `dovetail.training.loop.train`, without training."""
    (folder / "run.json").write_text(json.dumps({"run_id": run_id(config)}))
    kind = round(config.train.lr, 3)
    done = sum(1 for _ in (folder / "metrics.jsonl").open()) if (folder / "metrics.jsonl").exists() else 0
    for step in itertools.count(done + 1):
        if kind == FAILS and step == 2:
            raise RunError("policy_loss/loss is nan at rl step 2")
        if kind == CRASHES and step == 2:
            raise ValueError("a bug")
        if step == 2 and (kind == DIES or (kind == DIES_ONCE and done == 0)):
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == HANGS and step == 2:
            print("about to hang", flush=True)
            time.sleep(600)
        with (folder / "metrics.jsonl").open("a") as file:
            figures = {"pid": os.getpid(), "score": -kind * step, "reward/mean": -kind * step}
            file.write(json.dumps({"phase": "rl", "step": step, **figures}) + "\n")
        plugin_manager().hook.dovetail_step_end(phase="rl", step=step, metrics={}, run=None)
        if step % config.run.checkpoint_every == 0:
            checkpoint = folder / "checkpoints" / "steps" / str(config.sft.steps + step)
            checkpoint.mkdir(parents=True)
            plugin_manager().hook.dovetail_checkpoint(step=step, folder=checkpoint, run=None)
        if kind == SLOW:
            time.sleep(0.05)
        if (folder.parents[1] / ENOUGH).exists() if kind == SLOW else step >= STEPS:
            return


class Stub:
    """An executor of such workers."""

    def open(self, sweep: Path, jobs: int) -> LocalWorkers:
        return LocalWorkers(
            sweep=sweep, command=(sys.executable, __file__, str(sweep.absolute())), gpus=(), shared=False
        )


def plan(*rates: float, seeds: tuple[int, ...] = (0,)) -> tuple[Planned, dict]:
    """Return the same as `plan_trials`, without importing jax. Rates above 1 are in a group of their own."""
    space = Space(grid={"train.lr": rates}, seeds=seeds)
    trials, configs = {}, {}
    for point in space.points():
        config = load(None, [*point.overrides, f"run.seed={point.seed}"])
        group = "a" if config.train.lr < 1 else "b"
        trials[point] = Trial(overrides=point.overrides, seed=point.seed or 0, id=run_id(config), group=group)
        configs[trials[point].id] = config
    made = Planned(base=load(None), trials=tuple(trials.values()), configs=configs, by_point=trials)
    return made, {"space": space.describe()}


def sweep(folder: Path, *rates: float, say=print, seeds=(0,), stopping=None, **terms) -> tuple[Store, Counter]:
    """Run a sweep to its end."""
    planned, about = plan(*rates, seeds=seeds)
    store = Store.create(folder, planned, about)
    counts = drive(
        store,
        Stub(),
        Terms(**terms),
        watch=Quiet(say),
        prepare=lambda trial: store.prepare(trial, planned.configs[trial.id]),
        stopping=stopping,
    )
    return store, counts


def point(rate: float) -> Point:
    return Point((f"train.lr={rate}",), 0)


if __name__ == "__main__":
    if sys.argv[1] == "drive":
        with interruptions() as came:
            try:
                sweep(Path(sys.argv[2]), *map(float, sys.argv[3:]))
            except KeyboardInterrupt:
                sys.exit(128 + came[0])
    else:
        for name, content in (
            ("dovetail.training.loop", {"train": train}),
            ("dovetail_lab.summary", {"summarise": str}),
            ("dovetail.run.process", {"prepare": lambda: None}),
        ):
            sys.modules[name] = types.ModuleType(name)
            vars(sys.modules[name]).update(content)
        load(None)  # imports the components, so that the time of a trial does not include this
        from dovetail_lab.sweep.worker import main

        main()

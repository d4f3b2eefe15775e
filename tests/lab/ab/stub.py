"""Runs of an A/B test without training: their records are drawn from a generator that depends on the arm and the seed.

The learning rate identifies the arm.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import numpy as np

from dovetail.cli import main
from dovetail.config import Config, load, run_id
from dovetail.errors import RunError
from dovetail_executor.executor.local import Local
from dovetail_lab.sweep import Store, driver

CONTROL, BETTER, SAME, CRASHES = 0.1, 0.2, 0.3, 0.4
GAIN = {BETTER: 0.12}
LONGER = {BETTER: 1.5}
LIKE: dict[float, float] = {}
"""Arms that compute the same as another arm."""
PROMPTS, EVERY = 60, 10
ARMS = ("--arm", f"base:train.lr={CONTROL}", "--arm", f"up:train.lr={BETTER}")
QUICK = ("--set", "train.steps=40", "--seeds", "6", "--window", "last2")


def train(config: Config, folder: Path) -> None:
    """Write the records of a run: metrics and timings of each step, and each prompt of each evaluation."""
    arm, seed, total = round(config.train.lr, 3), config.run.seed, config.train.steps
    arm = LIKE.get(arm, arm)
    if arm == CRASHES and seed == 1:
        raise RunError("policy_loss/loss is nan at rl step 3")
    shared, own = np.random.default_rng(seed), np.random.default_rng([seed, round(1000 * arm)])
    ability, hard = 0.4 + shared.normal(0, 0.06), np.random.default_rng(99).normal(0, 0.15, PROMPTS)
    level = ability + GAIN.get(arm, 0.0) + own.normal(0, 0.015)
    metrics, timings, prompts = [], [], []
    for step in range(total + 1):
        progress = 1 - math.exp(-3 * step / total)
        length = 20 * (1 + (LONGER.get(arm, 1) - 1) * progress) + own.normal(0, 0.3)
        if step:
            line = {
                "reward/mean": progress * level + own.normal(0, 0.03),
                "completion/length_mean": length,
                "completion/truncated": 0.01,
                "entropy/mean": 1.2 - 0.7 * progress + own.normal(0, 0.02),
                "policy_loss/clip_fraction": 0.02 * progress,
                "optimizer/grad_norm": 1.0 + own.normal(0, 0.1),
                "optimizer/update_norm": 0.02 + own.normal(0, 0.001),
            }
            metrics.append({"phase": "rl", "step": step, **line})
            speed = {"time/step": 0.5, "time/rollout": 0.2, "time/update": 0.3, "time/tokens_per_second": 128 * length}
            timings.append({"phase": "rl", "step": step, **speed, "memory/arrays": 4e7})
        if step % EVERY == 0:
            right = (own.random(PROMPTS) < np.clip(0.1 + progress * level + hard, 0, 1)).astype(int)
            metrics.append(
                {"phase": "rl", "step": step, "eval/accuracy": float(right.mean()), "eval/length_mean": length}
            )
            timings.append({"phase": "rl", "step": step, "time/eval": 2.0, "time/step": 2.0})
            prompts.append({"phase": "rl", "step": step, "accuracy": right.tolist()})
    (folder / "run.json").write_text(json.dumps({"run_id": run_id(config)}))
    for name, lines in (("metrics", metrics), ("timings", timings), ("eval", prompts)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@attrs.frozen
class Workers:
    """Runs trials at once in this process. `mishaps` are called with a trial's folder in place of its training."""

    sweep: Path
    mishaps: dict[int, Callable[[Path], None]]

    def open_worker(self, number: int) -> "Workers":
        return self

    def start(self, trials: Sequence[str]) -> None:
        store = Store.open(self.sweep)
        for trial in map(store.find, trials):
            with store.claim(trial), (store.folder(trial) / "log.txt").open("a") as log:
                log.write(f"{trial.label}\n")
                try:
                    self.mishaps.get(trial.seed, lambda folder: train(load(folder / "config.gin"), folder))(
                        store.folder(trial)
                    )
                    store.settle(trial, "done")
                except RunError as error:
                    store.settle(trial, "failed", str(error))

    def finished(self) -> bool:
        return True

    def kill(self) -> None:
        """Do nothing, since there are no processes."""

    close = kill


def without_processes(folder: Path, monkeypatch) -> dict[int, Callable[[Path], None]]:
    """Let `ab` run in a folder with an executor of `Workers`; return their mishaps by seed."""
    mishaps: dict[int, Callable[[Path], None]] = {}
    monkeypatch.chdir(folder)
    monkeypatch.setattr(Local, "open", lambda self, sweep, jobs: Workers(sweep, mishaps))
    monkeypatch.setattr(driver, "TICK_SECONDS", 0.001)
    (folder / "mine.gin").write_text("")
    return mishaps


def ab(*arguments: str) -> int:
    """Run `dovetail ab mine.gin` in the working folder, without training."""
    return main(["ab", "mine.gin", *arguments])

"""The training run: a supervised warm start if the config has one, then reinforcement learning."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

from dovetail.config import Config
from dovetail.errors import ConfigError
from dovetail.interruptions import stop_if_asked, uninterrupted
from dovetail.registry import plugin_manager
from dovetail.registry.calls import ask_for
from dovetail.training.channels import Opening
from dovetail.training.drawn import Extras
from dovetail.training.learner import Learner
from dovetail.training.metrics import Clock, memory
from dovetail.training.rehearsal import rehearse
from dovetail.training.session import RL, Run, open_run


def train(config: Config, folder: Path, *, only_sft: bool = False, opening: Opening | None = None) -> dict[str, float]:
    """Run a config to the end, resuming from the newest checkpoint in its folder.

    Args:
        config: the config of the run.
        folder: the run's folder; an interrupted run resumes from its newest checkpoint there.
        only_sft: stop after the supervised warm start.
        opening: opens the source of batches in place of a sampler; no engine is needed then.

    Returns:
        The last metrics.

    Raises:
        DovetailError: with one line for the user; checkpoints and records written so far are kept.
    """
    if only_sft and not config.sft.steps:
        raise ConfigError("sft.steps = 0: there is no supervised phase; set its number of steps")
    with open_run(config, folder, only_sft=only_sft, opening=opening) as run:
        if only_sft:
            warm_start(run)
        else:
            extras = Extras.of(run.setup)
            rehearse(extras)
            reinforce(run, warm_start(run), extras)
        return run.last


def warm_start(run: Run) -> Any:
    """Return the policy's parameters with which reinforcement learning begins, after the warm start of a plugin."""
    if not run.config.sft.steps or (run.resumed and run.resumed[1].phase == RL):
        return run.setup.weights.trained
    trained_by = ask_for(plugin_manager(), "dovetail_warm_start", run.config, "sft.steps", config=run.config)
    return trained_by(run)


def reinforce(run: Run, start: Any, extras: Extras) -> None:
    """Train by reinforcement for `train.steps` steps. This is the trainer's program; the sampler's is in `drawing`."""
    learner = Learner.open(run, start, extras)
    total = run.config.train.steps
    with contextlib.closing(learner.sampling):
        learner.take_evaluations(learner.first)
        for step in range(learner.first, total):
            clock = Clock(step + 1)
            stop_if_asked()
            run.observe("dovetail_step_begin", step=step + 1)
            batch = learner.take(clock)
            with uninterrupted():
                metrics = learner.learn(batch, step, clock)
            try:
                learner.publish(step + 1, clock)
            finally:  # the update is complete, whether or not the engine accepts the weights
                with uninterrupted():
                    timings, keep = clock.timings(batch.tokens) | memory(), partial(learner.keep, step + 1)
                    run.record(RL, step + 1, metrics, timings, keep)
            stop_if_asked()
            learner.take_evaluations(step + 1)
            if run.due(step + 1, total):
                run.checkpoint(RL, step + 1, *learner.state(step + 1))

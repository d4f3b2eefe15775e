"""The training run: a supervised warm start if the config has one, then reinforcement learning."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from dovetail import progress
from dovetail.config import Config
from dovetail.data import prompt_stream
from dovetail.devices import processes
from dovetail.errors import ConfigError
from dovetail.interruptions import stop_if_asked, uninterrupted
from dovetail.step import keys
from dovetail.step.algorithm import sft_optimiser
from dovetail.step.update import Trained
from dovetail.train import sft
from dovetail.train.channels import Opening
from dovetail.train.learner import Learner
from dovetail.train.metrics import Clock, means, memory
from dovetail.train.session import RL, SFT, Run, observe, open_run


def train(
    config: Config,
    folder: Path,
    *,
    only_sft: bool = False,
    opening: Opening | None = None,
) -> dict[str, float]:
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
        policy = warm_start(run)
        if not only_sft:
            reinforce(run, policy)
        return run.last


def warm_start(run: Run) -> Any:
    """Train on demonstrations for `sft.steps` steps; return the policy's trained parameters."""
    setup, total = run.setup, run.config.sft.steps
    if not total or (run.resumed and run.resumed[1].phase == RL):
        return setup.weights.trained
    optimiser, hyper = sft_optimiser(run.config)
    policy = Trained(setup.weights.trained, optimiser.init(setup.weights.trained))
    found, reports = sft.demonstrations(setup, *sft.longest(run.config))
    stream = prompt_stream(found, run.config.run.seed, run.config.sft.batch_size)
    first = 0
    if saved := run.resumes(SFT):
        policy, first = run.restore(policy), saved.step
        stream.set_state(saved.data)
    else:
        run.tell(*reports)
    update = sft.compile_sft(setup, optimiser)
    for step in range(first, total):
        clock = Clock()
        if not processes.several():
            run.keep(SFT, step, policy, stream.get_state())
        stop_if_asked()
        progress.begin("warm start", total=None)
        examples = next(stream)
        batch = processes.told_arrays(lambda examples=examples: sft.as_batch(examples, setup))
        with uninterrupted():
            run.forget()
            dropout = keys.stream(run.config.run.seed, keys.DROPOUT, step)
            policy, sums = update(
                policy, setup.weights.frozen, batch, jnp.int32(step), jnp.int32(total), dropout, hyper
            )
            metrics = means(sums)
            run.stop_if_not_finite(SFT, step, metrics, ("sft/loss", "sft/grad_norm"), batch)
            clock.mark("update")
            run.record(SFT, step + 1, metrics, clock.timings(int(batch["mask"].sum())))
        if run.due(step + 1, total):
            run.checkpoint(SFT, step + 1, policy, stream.get_state())
    return policy.params


def reinforce(run: Run, start: Any) -> None:
    """Train by reinforcement for `train.steps` steps. This is the trainer's program; the sampler's is in `drawing`."""
    learner = Learner.open(run, start)
    total = run.config.train.steps
    with contextlib.closing(learner.sampling):
        learner.take_evaluations(learner.first)
        for step in range(learner.first, total):
            clock = Clock(step + 1)
            learner.keep(step)
            stop_if_asked()
            observe("dovetail_step_begin", step=step + 1)
            batch = learner.take(clock)
            with uninterrupted():
                metrics = learner.learn(batch, step, clock)
            try:
                learner.publish(step + 1, clock)
            finally:  # the update is complete, whether or not the engine accepts the weights
                with uninterrupted():
                    run.record(RL, step + 1, metrics, clock.timings(batch.tokens) | memory())
                    learner.keep(step + 1)
            stop_if_asked()
            learner.take_evaluations(step + 1)
            run.forget()
            if run.due(step + 1, total):
                run.checkpoint(RL, step + 1, *learner.state(step + 1))

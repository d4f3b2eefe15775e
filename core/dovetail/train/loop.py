"""The training run: a supervised warm start where the config asks for one, then reinforcement learning."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np

from dovetail.config import Config
from dovetail.data import prompt_stream
from dovetail.errors import RunError
from dovetail.protocols import Sampling, Sink
from dovetail.registry import plugin_manager
from dovetail.run.checkpoint import Checkpoints, Saved
from dovetail.run.folder import RunFolder, open_folder
from dovetail.train import keys, sft
from dovetail.train.algorithm import sft_optimiser
from dovetail.train.collect import Collector
from dovetail.train.parts import Sums
from dovetail.train.sampling import Sampled, Sampler
from dovetail.train.setup import Setup, set_up
from dovetail.train.update import CriticUpdate, Moment, PolicyUpdate, Trained, mini_batches

SFT, RL = "sft", "rl"


def train(config: Config, folder: Path, *, only_sft: bool = False) -> dict[str, float]:
    """Run a config from wherever its folder stands to the end.

    Args:
        config: what to train.
        folder: the run's folder; a run that was interrupted there goes on from its newest checkpoint.
        only_sft: stop after the supervised warm start.

    Returns:
        The last metrics.

    Raises:
        DovetailError: with one line for the user; checkpoints and records written so far stay.
    """
    with open_run(config, folder) as run:
        policy = warm_start(run)
        if not only_sft:
            reinforce(run, policy)
        return run.last


@attrs.define(kw_only=True)
class Run:
    """What both phases share: the pieces, the folder, and where the records go."""

    setup: Setup
    folder: RunFolder
    checkpoints: Checkpoints
    sinks: list[Sink]
    resumed: tuple[int, Saved] | None
    last: dict[str, float] = attrs.field(factory=dict)

    @property
    def config(self) -> Config:
        """The run's config."""
        return self.setup.config

    def resumes(self, phase: str) -> Saved | None:
        """Return the checkpoint to go on from, if it is one of this phase."""
        return self.resumed[1] if self.resumed and self.resumed[1].phase == phase else None

    def restore(self, like: Any) -> Any:
        """Return the newest checkpoint's state."""
        assert self.resumed is not None, "only a resumed run restores"
        return self.checkpoints.restore(self.resumed[0], like)

    def record(self, phase: str, step: int, metrics: dict[str, float], timings: dict[str, float]) -> None:
        """Write one step to the journal, the sinks and the observers."""
        self.last |= metrics
        self.folder.journal.metrics(phase, step, metrics)
        self.folder.journal.timings(phase, step, timings)
        for sink in self.sinks:
            sink.write(step, metrics | timings)
        plugin_manager().hook.dovetail_step_end(step=step, metrics=metrics | timings)

    def checkpoint(self, phase: str, step: int, state: Any, data: dict[str, Any]) -> None:
        """Save the state after `step` steps of a phase."""
        number = step if phase == SFT else self.config.sft.steps + step
        if self.resumed and number <= self.resumed[0]:
            return
        saved = Saved(phase=phase, step=step, data=data, journal=self.folder.journal.position())
        path = self.checkpoints.save(number, state, saved)
        plugin_manager().hook.dovetail_checkpoint(step=step, folder=path)

    def due(self, step: int, total: int) -> bool:
        """Tell whether a checkpoint is due after `step` steps."""
        return step == total or step % self.config.run.checkpoint_every == 0


@contextmanager
def open_run(config: Config, path: Path) -> Iterator[Run]:
    """Open the folder, build the pieces, and close all of it whatever happens."""
    hook = plugin_manager().hook
    with ExitStack() as stack:
        folder = open_folder(path, config)
        stack.callback(folder.close)
        setup = set_up(config, folder.path)
        checkpoints = Checkpoints(folder.checkpoints, config.run.keep_checkpoints)
        stack.callback(checkpoints.close)
        resumed = checkpoints.newest()
        folder.journal.rewind(resumed[1].journal if resumed else {})
        start = resumed[1].step if resumed and resumed[1].phase == RL else 0
        sinks = []
        for choice in config.listed("run.sinks"):
            sink = choice.component.bind(**choice.params).open(path, config.train.steps, start)
            stack.callback(sink.close)
            sinks.append(sink)
        run = Run(setup=setup, folder=folder, checkpoints=checkpoints, sinks=sinks, resumed=resumed)
        hook.dovetail_run_start(folder=path, config_id=folder.config_id, run_id=folder.run_id, config=config)
        status = "failed"
        try:
            yield run
            status = "done"
        except KeyboardInterrupt:
            status = "stopped"
            raise
        finally:
            hook.dovetail_run_end(status=status, step=run.resumed[0] if run.resumed else 0)


def warm_start(run: Run) -> Any:
    """Train on demonstrations for `sft.steps` steps; return the policy's parameters."""
    setup, total = run.setup, run.config.sft.steps
    if not total or (run.resumed and run.resumed[1].phase == RL):
        return setup.params
    optimiser, hyper = sft_optimiser(run.config)
    policy = Trained(setup.params, optimiser.init(setup.params))
    examples, reports = sft.demonstrations(setup)
    stream = prompt_stream(examples, run.config.run.seed, run.config.sft.batch_size)
    first = 0
    if saved := run.resumes(SFT):
        policy, first = run.restore(policy), saved.step
        stream.set_state(saved.data)
    else:
        _tell(reports)
    update = sft.compile_sft(setup, optimiser)
    for step in range(first, total):
        clock = _Clock()
        batch = sft.as_batch(next(stream), setup)
        policy, sums = update(policy, batch, jnp.int32(step), jnp.int32(total), hyper)
        metrics = means(sums)
        _stop_if_not_finite(run, SFT, step, metrics, ("sft/loss", "sft/grad_norm"), batch)
        clock.mark("step")
        run.record(SFT, step + 1, metrics, clock.timings(int(batch["mask"].sum())))
        if run.due(step + 1, total):
            run.checkpoint(SFT, step + 1, policy, stream.get_state())
    return policy.params


def reinforce(run: Run, start_params: Any) -> None:
    """Train by reinforcement for `train.steps` steps."""
    learner = Learner.open(run, start_params)
    total, config = run.config.train.steps, run.config
    if learner.first == 0:
        learner.evaluate(0)
    for step in range(learner.first, total):
        clock = _Clock()
        examples = next(learner.stream)
        sampled, greedy = learner.sample(examples, step, clock)
        metrics = learner.learn(sampled, greedy, step, clock)
        run.record(RL, step + 1, metrics, clock.timings(int(sampled.completions.mask.sum())))
        if (step + 1) % config.eval.every == 0 or step + 1 == total:
            learner.evaluate(step + 1)
        if run.due(step + 1, total):
            run.checkpoint(RL, step + 1, learner.state(), learner.stream.get_state())
    learner.sampler.engine.close()


@attrs.define(kw_only=True)
class Learner:
    """The state of the RL phase and the compiled functions that advance it."""

    run: Run
    policy: Trained
    critic: Trained | None
    kl_state: Any
    reference: Any
    sampler: Sampler
    stream: Any
    first: int
    collect: Callable[..., Any]
    update_policy: Callable[..., Any]
    update_critic: Callable[..., Any] | None
    evaluate_now: Callable[..., Any]

    @classmethod
    def open(cls, run: Run, start_params: Any) -> Learner:
        """Build the state, or restore it, and compile nothing yet."""
        setup, algorithm, config = run.setup, run.setup.algorithm, run.config
        reference = _reference(run, start_params)
        policy = Trained(start_params, algorithm.optimiser.init(start_params))
        critic_graphdef, critic = None, None
        if algorithm.critic:
            critic_graphdef, weights = setup.critic(start_params)
            critic = Trained(weights, algorithm.critic.optimiser.init(weights))
        examples, report = setup.train_examples()
        stream = prompt_stream(examples, config.run.seed, config.train.prompts)
        kl_state = algorithm.kl_controller.build().init(config.train.kl_coef)
        first = 0
        if saved := run.resumes(RL):
            policy, critic, kl_state = run.restore((policy, critic, kl_state))
            stream.set_state(saved.data)
            first = saved.step
        else:
            _tell([report])
        sampler = Sampler(
            engine=setup.engine(policy.params),
            tokenizer=setup.tokenizer,
            scorer=setup.scorer,
            max_prompt_tokens=config.train.max_prompt_tokens,
        )
        collector = Collector(algorithm=algorithm, graphdef=setup.graphdef, critic_graphdef=critic_graphdef)
        update_policy = PolicyUpdate(algorithm=algorithm, graphdef=setup.graphdef)
        update_critic = CriticUpdate(algorithm=algorithm, graphdef=critic_graphdef) if algorithm.critic else None
        return cls(
            run=run,
            policy=policy,
            critic=critic,
            kl_state=kl_state,
            reference=reference,
            sampler=sampler,
            stream=stream,
            first=first,
            collect=jax.jit(collector.__call__),
            update_policy=jax.jit(update_policy.__call__, donate_argnums=0),
            update_critic=jax.jit(update_critic.__call__, donate_argnums=0) if update_critic else None,
            evaluate_now=setup.evaluator(sampler),
        )

    def state(self) -> tuple[Any, ...]:
        """Everything that a checkpoint holds."""
        return self.policy, self.critic, self.kl_state

    def sample(self, examples: Any, step: int, clock: _Clock) -> tuple[Sampled, Sampled | None]:
        """Sample a group of completions per prompt, and greedy ones where an estimator reads their scores."""
        config = self.run.config
        per_sample = keys.per_sample(
            keys.stream(config.run.seed, keys.SAMPLING, step), len(examples), config.train.group_size
        )
        settings = config.sampling
        drawn = self.sampler.draw(
            examples,
            per_sample,
            Sampling(
                temperature=settings.temperature,
                top_k=settings.top_k,
                top_p=settings.top_p,
                max_tokens=settings.max_tokens,
            ),
        )
        clock.mark("rollout")
        sampled = self.sampler.score(examples, *drawn)
        clock.mark("reward")
        if not self.run.setup.algorithm.plan.greedy:
            return sampled, None
        greedy = self.sampler(examples, per_sample[:, :1], Sampling(temperature=0.0, max_tokens=settings.max_tokens))
        clock.mark("greedy")
        return sampled, greedy

    def learn(self, sampled: Sampled, greedy: Sampled | None, step: int, clock: _Clock) -> dict[str, float]:
        """Estimate advantages, update the critic and the policy, hand the new weights to the engine."""
        algorithm, hyper, config = self.run.setup.algorithm, self.run.setup.algorithm.hyper, self.run.config
        host_batch = sampled.batch()
        if greedy is not None:
            host_batch["greedy_scores"] = np.repeat(
                greedy.scores.total.astype(np.float32), config.train.group_size
            )
        controller = algorithm.kl_controller.build()
        moment = Moment(
            step=jnp.int32(step),
            total=jnp.int32(config.train.steps),
            key=keys.stream(config.run.seed, keys.STEP, step),
            kl_coef=jnp.float32(controller.coef(self.kl_state)),
        )
        batch, sums = self.collect(
            self.policy.params,
            self.reference,
            self.critic.params if self.critic else None,
            jax.tree.map(jnp.asarray, host_batch),
            moment.kl_coef,
            hyper,
            moment.key,
            moment.progress,
        )
        warming_up = algorithm.critic is not None and step < algorithm.critic.warmup_steps
        for mini in mini_batches(batch, algorithm.mini_batch_size, algorithm.epochs, moment.key):
            if self.update_critic:
                self.critic, found = self.update_critic(self.critic, mini, moment, hyper)
                sums = _add(sums, found)
            if not warming_up:
                self.policy, found = self.update_policy(self.policy, mini, moment, hyper)
                sums = _add(sums, found)
        if algorithm.kl and not warming_up:
            total, count = sums["kl/mean"]
            self.kl_state = controller.update(self.kl_state, total / jnp.maximum(count, 1), len(host_batch["scores"]))
        metrics = rollout_metrics(sampled) | means(sums)
        if algorithm.kl:
            metrics["kl/coef"] = float(moment.kl_coef)
        clock.mark("update")
        watched = ("policy_loss/loss", "optimizer/grad_norm", "critic/loss", "critic/grad_norm")
        _stop_if_not_finite(self.run, RL, step, metrics, watched, batch)
        self.sampler.engine.sync(self.policy.params, step + 1)
        clock.mark("sync")
        return metrics

    def evaluate(self, step: int) -> None:
        """Evaluate the current policy and keep some of its completions."""
        clock = _Clock()
        metrics, records = self.evaluate_now()
        clock.mark("eval")
        self.run.record(RL, step, metrics, clock.timings(0))
        self.run.folder.journal.samples(RL, step, records)


def rollout_metrics(sampled: Sampled) -> dict[str, float]:
    """Return rewards, lengths and truncation of a step's completions."""
    scores, lengths = sampled.scores, sampled.completions.mask.sum(axis=1)
    metrics = {
        "reward/mean": float(scores.total.mean()),
        "reward/std": float(scores.total.std()),
        "completion/length_mean": float(lengths.mean()),
        "completion/length_max": float(lengths.max()),
        "completion/truncated": float(sampled.completions.truncated.mean()),
    }
    for index, name in enumerate(scores.names):
        given = scores.table[:, index][~np.isnan(scores.table[:, index])]
        if len(given):
            metrics[f"reward/{name}"] = float(given.mean())
    return metrics


def means(sums: Sums) -> dict[str, float]:
    """Fetch metric sums, in one transfer, as means; a metric that counted nothing is left out."""
    host = jax.device_get(sums)
    return {name: float(total / count) for name, (total, count) in sorted(host.items()) if count > 0}


def _add(sums: Mapping[str, Any], more: Mapping[str, Any]) -> Sums:
    both = dict(sums)
    for name, (total, count) in more.items():
        before = both.get(name, (0.0, 0.0))
        both[name] = (before[0] + total, before[1] + count)
    return both


def _reference(run: Run, start_params: Any) -> Any:
    """The weights with which RL began, kept apart from those being trained; None if no component reads them."""
    if not run.setup.algorithm.plan.ref:
        return None
    if run.resumes(RL):
        kept = run.checkpoints.restore_start(start_params)
        if kept is None:
            raise RunError(f"'{run.folder.checkpoints}' has lost the reference weights (start); the run cannot resume")
        return kept
    run.checkpoints.save_start(start_params)
    return jax.tree.map(jnp.copy, start_params)


def _stop_if_not_finite(
    run: Run, phase: str, step: int, metrics: Mapping[str, float], watched: tuple[str, ...], batch: Mapping[str, Any]
) -> None:
    bad = [name for name in watched if name in metrics and not np.isfinite(metrics[name])]
    if not bad:
        return
    dump = run.folder.path / f"not-finite-{phase}-{step + 1}.npz"
    np.savez_compressed(dump, **{name: np.asarray(array) for name, array in batch.items()})
    raise RunError(
        f"{bad[0]} is {metrics[bad[0]]} at {phase} step {step + 1}; the batch is in '{dump}', the last good checkpoint in"
        f" '{run.folder.checkpoints}'. A lower learning rate or train.max_grad_norm is the usual cure"
    )


def _tell(reports: Any) -> None:
    for report in reports:
        if report.too_long:
            print(report)


class _Clock:
    """Wall-clock seconds between marks of one step."""

    def __init__(self) -> None:
        self._began = self._last = time.perf_counter()
        self._seconds: dict[str, float] = {}

    def mark(self, name: str) -> None:
        now = time.perf_counter()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._last
        self._last = now

    def timings(self, tokens: int) -> dict[str, float]:
        """Return `time/*`; completion tokens per second of the whole step where tokens were made."""
        step = time.perf_counter() - self._began
        found = {f"time/{name}": seconds for name, seconds in self._seconds.items()} | {"time/step": step}
        return found | ({"time/tokens_per_second": tokens / step} if tokens else {})

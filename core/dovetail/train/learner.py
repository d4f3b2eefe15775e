"""The learner: the state of the RL phase and the compiled functions that advance it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from dovetail.data import prompt_stream
from dovetail.errors import RunError
from dovetail.protocols import Sampling
from dovetail.train import keys
from dovetail.train.collect import Collector
from dovetail.train.metrics import Clock, add, means, rollout_metrics
from dovetail.train.refill import refill
from dovetail.train.sampling import Sampled, Sampler
from dovetail.train.session import RL, Run
from dovetail.train.update import CriticUpdate, Moment, PolicyUpdate, Trained, mini_batches


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
        stream = prompt_stream(setup.train_examples, config.run.seed, config.train.prompts)
        kl_state = algorithm.kl_controller.build().init(config.train.kl_coef)
        first = 0
        if saved := run.resumes(RL):
            policy, critic, kl_state = run.restore((policy, critic, kl_state))
            stream.set_state(saved.data)
            first = saved.step
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

    def sample(self, step: int, clock: Clock) -> tuple[Sampled, Sampled | None, dict[str, float]]:
        """Sample a group of completions per prompt, and greedy ones where an estimator reads their scores.

        Where a group filter is chosen, rejected groups are replaced by further prompts; its metrics come last.
        """
        algorithm, train = self.run.setup.algorithm, self.run.config.train
        metrics: dict[str, float] = {}
        if algorithm.group_filter is None:
            sampled = self._round(step, 0, clock)
        else:
            sampled, metrics = refill(lambda number: self._round(step, number, clock), self._keep, train.refill_rounds)
        if not algorithm.plan.greedy:
            return sampled, None, metrics
        prompts = sampled.examples[:: train.group_size]
        greedy = Sampling(temperature=0.0, max_tokens=self.run.config.sampling.max_tokens)
        drawn = self.sampler(prompts, keys.per_sample(self._key(step), len(prompts), 1), greedy)
        clock.mark("greedy")
        return sampled, drawn, metrics

    def _round(self, step: int, number: int, clock: Clock) -> Sampled:
        """Sample and score the next prompts; the prompts of a step are counted through its rounds."""
        examples = next(self.stream)
        first = number * len(examples)
        per_sample = keys.per_sample(self._key(step), len(examples), self.run.config.train.group_size, first)
        drawn = self.sampler.draw(examples, per_sample, self.run.config.sampling)
        clock.mark("rollout")
        sampled = self.sampler.score(examples, *drawn)
        clock.mark("reward")
        return sampled

    def _key(self, step: int) -> Key[Array, ""]:
        return keys.stream(self.run.config.run.seed, keys.SAMPLING, step)

    def _keep(self, sampled: Sampled) -> Bool[np.ndarray, "prompt"]:
        """Ask the filter, which answers for each completion, about each group."""
        algorithm = self.run.setup.algorithm
        assert algorithm.group_filter is not None, "only a run with a filter asks it"
        kept, _ = algorithm.group_filter(jax.tree.map(jnp.asarray, sampled.batch()), algorithm.hyper)
        return np.all(np.asarray(kept).reshape(len(sampled.prompt_tokens), -1), axis=1)

    def learn(self, sampled: Sampled, greedy: Sampled | None, step: int, clock: Clock) -> dict[str, float]:
        """Estimate advantages, update the critic and the policy, hand the new weights to the engine."""
        algorithm, hyper, config = self.run.setup.algorithm, self.run.setup.algorithm.hyper, self.run.config
        host_batch = sampled.batch()
        if greedy is not None:
            baseline = np.repeat(greedy.scores.total.astype(np.float32), config.train.group_size)
            host_batch["greedy_scores"] = np.nan_to_num(baseline)
            host_batch["mask"] = host_batch["mask"] & ~np.isnan(baseline)[:, None]  # no score, no baseline
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
                sums = add(sums, found)
            if not warming_up:
                self.policy, found = self.update_policy(self.policy, mini, moment, hyper)
                sums = add(sums, found)
        if algorithm.kl and not warming_up:
            total, count = sums["kl/mean"]
            self.kl_state = controller.update(self.kl_state, total / jnp.maximum(count, 1.0), len(host_batch["scores"]))
        metrics = rollout_metrics(sampled) | means(sums)
        if algorithm.kl:
            metrics["kl/coef"] = float(moment.kl_coef)
        clock.mark("update")
        watched = ("policy_loss/loss", "optimizer/grad_norm", "critic/loss", "critic/grad_norm")
        self.run.stop_if_not_finite(RL, step, metrics, watched, batch)
        self.sampler.engine.sync(self.policy.params, step + 1)
        clock.mark("sync")
        return metrics

    def evaluate(self, step: int) -> None:
        """Evaluate the current policy and keep some of its completions."""
        clock = Clock()
        metrics, records = self.evaluate_now()
        clock.mark("eval")
        self.run.record(RL, step, metrics, clock.timings(0))
        self.run.folder.journal.samples(RL, step, records)


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

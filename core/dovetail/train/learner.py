"""The learner: the state of the RL phase and the compiled functions that advance it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from dovetail.data import prompt_stream
from dovetail.errors import RunError
from dovetail.protocols import Weights
from dovetail.train import keys
from dovetail.train.collect import Collector
from dovetail.train.devices.compiled import share
from dovetail.train.devices.mesh import to_device, to_host
from dovetail.train.metrics import Clock, means, rollout_metrics
from dovetail.train.mismatch import effective_sample_size
from dovetail.train.moment import Moment
from dovetail.train.parts import Sums, merge, once
from dovetail.train.prompts import answers, encode_completions
from dovetail.train.refill import refill
from dovetail.train.sampling import Sampled, Sampler
from dovetail.train.session import RL, Run
from dovetail.train.update import CriticUpdate, PolicyUpdate, Trained, mini_batches


@attrs.define(kw_only=True)
class Learner:
    """The state of the RL phase and the compiled functions that advance it."""

    run: Run
    policy: Trained
    critic: Trained | None
    critic_frozen: Any
    controllers: dict[str, Any]
    reference: Weights | None
    sampler: Sampler
    stream: Any
    first: int
    collect: Callable[..., Any]
    update_policy: Callable[..., Any]
    update_critic: Callable[..., Any] | None
    evaluate_now: Callable[..., Any]

    @classmethod
    def open(cls, run: Run, start: Any) -> Learner:
        """Build the state, or restore it, and compile nothing yet."""
        setup, algorithm, config = run.setup, run.setup.algorithm, run.config
        reference = _reference(run, start)
        policy = Trained(start, algorithm.optimiser.init(start))
        critic_graphdef, critic, critic_frozen = None, None, None
        if algorithm.critic:
            critic_graphdef, (weights, critic_frozen) = setup.models.critic(Weights(start, setup.weights.frozen))
            critic = Trained(weights, algorithm.critic.optimiser.init(weights))
        stream = prompt_stream(setup.train_examples, config.run.seed, config.train.prompts)
        controllers = {
            "kl": algorithm.kl_controller.build().init(config.train.kl_coef),
            "entropy": algorithm.entropy_controller.build().init(config.train.entropy_coef),
        }
        if algorithm.plan.state:
            controllers["advantage"] = algorithm.advantage.build().init(setup.roles.count)
        first = 0
        if saved := run.resumes(RL):
            policy, critic, controllers = run.restore((policy, critic, controllers))
            stream.set_state(saved.data)
            first = saved.step
        sampler = Sampler(
            engine=setup.engine(Weights(policy.params, setup.weights.frozen)),
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
            critic_frozen=critic_frozen,
            controllers=controllers,
            reference=reference,
            sampler=sampler,
            stream=stream,
            first=first,
            collect=share(collector),
            update_policy=share(update_policy, donate=(0,)),
            update_critic=share(update_critic, donate=(0,)) if update_critic else None,
            evaluate_now=setup.evaluator(sampler),
        )

    @property
    def weights(self) -> Weights:
        """The policy as it is now."""
        return Weights(self.policy.params, self.run.setup.weights.frozen)

    def state(self) -> tuple[Any, ...]:
        """Everything that a checkpoint holds."""
        return self.policy, self.critic, self.controllers

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
        greedy = attrs.evolve(self.run.config.sampling, temperature=0.0)
        drawn = self.sampler(prompts, keys.per_sample(self._key(step), len(prompts), 1), greedy)
        clock.mark("greedy")
        return sampled, drawn, metrics

    def _round(self, step: int, number: int, clock: Clock) -> Sampled:
        """Sample and score the next prompts; the prompts of a step are counted through its rounds."""
        examples = next(self.stream)
        clock.mark("waiting")
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
        host_batch, moment = self._batch(sampled, greedy), self._moment(step)
        reference = to_device(self.reference) if config.memory.reference == "host" else self.reference
        batch, sums, state = self.collect(
            self.weights,
            reference,
            Weights(self.critic.params, self.critic_frozen) if self.critic else None,
            self.run.setup.devices.rows(host_batch),
            moment,
            hyper,
            self.controllers.get("advantage"),
        )
        clock.mark_when_ready("scoring", batch)
        if algorithm.plan.state:
            self.controllers["advantage"] = state
        self._bring_optimiser(to_device)
        warming_up = algorithm.critic is not None and step < algorithm.critic.warmup_steps
        beside = reference if algorithm.plan.reference_in_update else None
        shared = algorithm.rows_per_prompt
        for mini in mini_batches(batch, algorithm.mini_batch_size, algorithm.epochs, moment.key, shared):
            if self.update_critic:
                self.critic, found = self.update_critic(self.critic, self.critic_frozen, mini, moment, hyper)
                sums = merge(sums, found)
            if not warming_up:
                self.policy, found = self.update_policy(self.policy, self.weights.frozen, beside, mini, moment, hyper)
                sums = merge(sums, found)
        self._bring_optimiser(to_host)
        if not warming_up:
            self._control(sums, len(host_batch["scores"]))
        coefficients = {"kl/coef": moment.kl_coef} if algorithm.kl else {}
        coefficients |= {"entropy/coef": moment.entropy_coef} if algorithm.entropy else {}
        # the step's only wait for the devices after sampling: everything before has been dispatched, not computed
        metrics = rollout_metrics(sampled) | means(sums | once(coefficients))
        if "mismatch/ratio_mean" in metrics:
            metrics["mismatch/effective_sample_size"] = effective_sample_size(metrics)
        clock.mark("update")
        watched = ("policy_loss/loss", "optimizer/grad_norm", "critic/loss", "critic/grad_norm")
        self.run.stop_if_not_finite(RL, step, metrics, watched, batch)
        self.sampler.engine.sync(self.weights, step + 1)
        clock.mark("sync")
        return metrics

    def _batch(self, sampled: Sampled, greedy: Sampled | None) -> dict[str, np.ndarray]:
        """Return what was sampled, with the scores of greedy completions and the task's answers where they are read."""
        train, batch = self.run.config.train, sampled.batch()
        if greedy is not None:
            baseline = np.repeat(greedy.scores.total.astype(np.float32), train.group_size)
            batch["greedy_scores"] = np.nan_to_num(baseline)
            batch["mask"] = batch["mask"] & ~np.isnan(baseline)[:, None]  # no score, no baseline
        if self.run.setup.algorithm.plan.roles:
            batch["role_ids"] = self.run.setup.roles.ids(sampled.examples)
        if self.run.setup.algorithm.plan.answers:
            tokenizer, limit = self.run.setup.tokenizer, self.run.config.sampling.max_tokens
            texts = answers(sampled.examples, train.answer_column)
            batch["answer_tokens"], batch["answer_mask"] = encode_completions(texts, tokenizer, limit)
        return batch

    def _moment(self, step: int) -> Moment:
        algorithm, config = self.run.setup.algorithm, self.run.config
        return Moment(
            step=jnp.int32(step),
            total=jnp.int32(config.train.steps),
            key=keys.stream(config.run.seed, keys.STEP, step),
            kl_coef=jnp.float32(algorithm.kl_controller.build().coef(self.controllers["kl"])),
            entropy_coef=jnp.float32(algorithm.entropy_controller.build().coef(self.controllers["entropy"])),
        )

    def _control(self, sums: Sums, samples: int) -> None:
        """Tell the controllers what the step has observed."""
        algorithm = self.run.setup.algorithm
        for name, part, used in (
            ("kl", algorithm.kl_controller, algorithm.kl),
            ("entropy", algorithm.entropy_controller, algorithm.entropy),
        ):
            if used:
                total, count = cast("tuple[Array, Array]", sums[f"{name}/mean"])
                observed = total / jnp.maximum(count, 1.0)
                self.controllers[name] = part.build().update(self.controllers[name], observed, samples)

    def _bring_optimiser(self, move: Callable[[Any], Any]) -> None:
        """Between updates the policy's optimiser may wait in the host's memory."""
        if self.run.config.memory.optimizer == "host":
            self.policy = Trained(self.policy.params, move(self.policy.optimiser))

    def evaluate(self, step: int) -> None:
        """Evaluate the current policy and keep some of its completions."""
        clock = Clock()
        found = self.evaluate_now()
        clock.mark("eval")
        self.run.record(RL, step, found.metrics, clock.timings(0))
        self.run.folder.journal.prompts(RL, step, found.columns)
        self.run.folder.journal.samples(RL, step, found.records)


def _reference(run: Run, start: Any) -> Weights | None:
    """The weights with which RL began, kept apart from those being trained; None if no component reads them.

    What is not trained is shared, so that with an adapter this is no second copy of the model.
    """
    if not run.setup.algorithm.plan.reference:
        return None
    if run.resumes(RL):
        kept = run.checkpoints.restore_start(start)
        if kept is None:
            raise RunError(f"'{run.folder.checkpoints}' has lost the reference weights (start); the run cannot resume")
    else:
        run.checkpoints.save_start(start)
        kept = jax.tree.map(jnp.copy, start)
    return Weights(to_host(kept) if run.config.memory.reference == "host" else kept, run.setup.weights.frozen)

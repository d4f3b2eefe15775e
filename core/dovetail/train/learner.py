"""The learner: the state of the RL phase and the compiled functions that advance it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from dovetail import progress
from dovetail.devices.compiled import share
from dovetail.devices.footprint import in_mode
from dovetail.devices.mesh import to_device, to_host
from dovetail.host.completer import Completer
from dovetail.host.refill import refill
from dovetail.host.replay import REPLAY, Replaying
from dovetail.host.sampling import Sampled, Sampler
from dovetail.plan.compared import KEPT
from dovetail.plan.roles import CRITIC, POLICY
from dovetail.protocols import Weights
from dovetail.step import keys
from dovetail.step.algorithm import Algorithm
from dovetail.step.collect import Collector
from dovetail.step.mismatch import effective_sample_size
from dovetail.step.moment import Moment
from dovetail.step.parts import Part, Sums, merge, once, sums
from dovetail.step.update import Trained, Update, mini_batches
from dovetail.step.view import View
from dovetail.train.drawn import Extras, Prompts
from dovetail.train.metrics import Clock, means, rollout_metrics
from dovetail.train.role_models import RoleModels
from dovetail.train.session import RL, Run


@attrs.define(kw_only=True)
class Learner:
    """The state of the RL phase and the compiled functions that advance it.

    Attributes:
        run: the run that it belongs to.
        policy: what is trained.
        critic: likewise, where the plan has one.
        critic_frozen: what of the critic is not trained.
        roles: the models beside them.
        memory: what controllers, the estimator and the curriculum remember, by name.
        sampler: the open engine.
        prompts: where the next prompts come from.
        first: steps done when the process began.
        evaluated: whether the evaluation that was due after them is there.
    """

    run: Run
    policy: Trained
    critic: Trained | None
    critic_frozen: Any
    roles: RoleModels
    memory: dict[str, Any]
    sampler: Sampler
    prompts: Prompts
    extras: Extras
    replay: Replaying | None
    first: int
    evaluated: bool
    collect: Callable[..., Any]
    update_policy: Callable[..., Any]
    update_critic: Callable[..., Any] | None
    evaluate_now: Callable[..., Any]

    @classmethod
    def open(cls, run: Run, start: Any) -> Learner:
        """Build the state, or restore it, and compile nothing yet."""
        setup, algorithm, config = run.setup, run.setup.algorithm, run.config
        roles = RoleModels.open(run, start)
        policy = Trained(start, algorithm.optimisers["train"].init(start))
        graphdefs = {POLICY: setup.graphdef, **roles.graphdefs}
        critic, critic_frozen = None, None
        if algorithm.has_critic:
            own, made = setup.models.critic(Weights(start, setup.weights.frozen))
            graphdefs[CRITIC], (weights, critic_frozen) = in_mode(own, made, setup.settled.mode), made
            critic = Trained(weights, algorithm.optimisers[CRITIC].init(weights))
        prompts = Prompts.of(setup)
        memory = {
            name: part.build().init(config.setting(name)) for name, part in algorithm.controllers.items()
        } | prompts.init()
        extras, replay = Extras.of(setup), Replaying.of(config)
        if replay is not None:
            memory[REPLAY] = replay.init(extras.empty())
        if "state" in algorithm.plan:
            memory["estimator"] = _remembering(algorithm).build().init(setup.speakers.count)
        first, evaluated = 0, False
        if saved := run.resumes(RL):
            policy, critic, memory, following = run.restore((policy, critic, memory, roles.state()))
            roles.restore(following)
            prompts.set_state(saved.data)
            first, evaluated = saved.step, saved.evaluated
        progress.begin("opening", config.choice("train.rollout").component.name)
        sampler = Sampler(
            complete=Completer(
                engine=setup.engine(Weights(policy.params, setup.weights.frozen)),
                tokenizer=setup.tokenizer,
                max_prompt_tokens=config.train.max_prompt_tokens,
                loop=setup.loop,
            ),
            scorer=setup.scorer,
            process_scorer=setup.process_scorer,
        )
        collector = Collector(algorithm=algorithm, graphdefs=graphdefs)
        update_policy = Update(algorithm=algorithm, graphdefs=graphdefs)
        update_critic = Update(algorithm=algorithm, graphdefs=graphdefs, model=CRITIC) if critic else None
        return cls(
            run=run,
            policy=policy,
            critic=critic,
            critic_frozen=critic_frozen,
            roles=roles,
            memory=memory,
            sampler=sampler,
            prompts=prompts,
            extras=extras,
            replay=replay,
            first=first,
            evaluated=evaluated,
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
        return self.policy, self.critic, self.memory, self.roles.state()

    def keep(self, step: int, *, evaluated: bool = True) -> None:
        """Have the run save the state as it is now, after `step` steps, should it fail."""
        policy, critic, memory, roles = self.state()
        state = policy, critic, dict(memory), roles  # what is remembered changes within a step
        self.run.keep(RL, step, state, self.prompts.get_state(), evaluated=evaluated)

    def sample(self, step: int, clock: Clock) -> tuple[Sampled, Sampled | None, dict[str, float]]:
        """Sample a group of completions per prompt, and greedy ones where an estimator reads their scores.

        Where a group filter is chosen, rejected groups are replaced by further prompts; its metrics come last.
        """
        algorithm, train = self.run.setup.algorithm, self.run.config.train
        metrics: dict[str, float] = {}
        if not algorithm.filters:
            sampled = self._round(step, 0, clock)
        else:
            reported: Sums = {}
            sampled, metrics = refill(
                lambda number: self._round(step, number, clock),
                lambda sampled: self._keep(sampled, step, reported),
                train.refill_rounds,
            )
            metrics |= means(reported)
        if "greedy_scores" not in algorithm.plan:
            return sampled, None, metrics
        prompts = sampled.completed.asked
        greedy = attrs.evolve(self.run.config.sampling, temperature=0.0)
        progress.begin(progress.SAMPLING, "greedily", len(prompts))
        drawn = self.sampler(prompts, keys.per_sample(self._key(step), len(prompts), 1), greedy)
        clock.mark("greedy")
        return sampled, drawn, metrics

    def _round(self, step: int, number: int, clock: Clock) -> Sampled:
        """Sample and score the next prompts; the prompts of a step are counted through its rounds."""
        examples = self.prompts.next(self.memory, step, number)
        clock.mark("waiting")
        first, samples = number * len(examples), self.run.config.train.group_size
        per_sample = keys.per_sample(self._key(step), len(examples), samples, first)
        progress.begin(progress.SAMPLING, total=len(examples) * samples)
        kept = KEPT in self.run.setup.algorithm.plan
        completed = self.sampler.complete(examples, per_sample, self.run.config.sampling, keep_support=kept)
        clock.mark("rollout")
        progress.begin("rewards")
        sampled = self.sampler.score(completed, tokens_too=True)
        self.memory |= self.prompts.observe(self.memory, sampled.scores.total)
        clock.mark("reward")
        return sampled

    def _key(self, step: int) -> Key[Array, ""]:
        return keys.stream(self.run.config.run.seed, keys.SAMPLING, step)

    def _keep(self, sampled: Sampled, step: int, reported: Sums) -> Bool[np.ndarray, "prompt"]:
        """Ask the filter, which answers for each completion, about each group; what it reports is added up."""
        algorithm = self.run.setup.algorithm
        scored, _ = self.extras.on_host(self.extras.batch(sampled, None, step), step, ("scored",))
        batch = jax.tree.map(jnp.asarray, scored)
        view = View(batch | self.extras.always(batch, step), algorithm.fields, algorithm.hyper)
        kept = np.ones(len(sampled.texts), bool)
        for each in algorithm.filters:
            answer, measured = each(view, algorithm.hyper)
            kept &= np.asarray(answer)
            reported |= merge(reported, sums(each.label, measured, batch["mask"]))
        return np.all(kept.reshape(sampled.prompts, -1), axis=1)

    def learn(self, sampled: Sampled, greedy: Sampled | None, step: int, clock: Clock) -> dict[str, float]:
        """Estimate advantages, update the critic and the policy."""
        algorithm, hyper = self.run.setup.algorithm, self.run.setup.algorithm.hyper
        progress.begin("scoring")
        host_batch, moment = self.extras.batch(sampled, greedy, step), self._moment(step)
        host_batch, found = self.extras.on_host(host_batch, step)
        replayed: dict[str, float] = {}
        if self.replay is not None:
            host_batch, self.memory[REPLAY], replayed = self.replay(self.memory[REPLAY], host_batch, step)
        weights = self.roles.weights() | {POLICY: self.weights}
        if self.critic:
            weights[CRITIC] = Weights(self.critic.params, self.critic_frozen)
        batch, measured, state = self.collect(
            weights, self.run.setup.devices.rows(host_batch), moment, hyper, self.memory.get("estimator")
        )
        clock.mark_when_ready("scoring", batch)
        if "state" in algorithm.plan:
            self.memory["estimator"] = state
        self.run.forget()
        progress.begin("update")
        measured = merge(found, merge(measured, self._update(batch, moment, step)))
        if not self._is_warming_up(step):
            self._after_step(measured, step, len(host_batch["scores"]))
        terms = [*algorithm.terms[POLICY], *algorithm.penalties]
        coefficients = {
            f"{term.part.label}/coef": moment.coefficients[term.coefficient] for term in terms if term.coefficient
        }
        # the step's only wait for the devices after sampling: everything before has been dispatched, not computed
        metrics = (
            rollout_metrics(sampled) | self.prompts.metrics | replayed | means(merge(measured, once(coefficients)))
        )
        if "mismatch/ratio_mean" in metrics:
            metrics["mismatch/effective_sample_size"] = effective_sample_size(metrics)
        clock.mark("update")
        watched = ("policy_loss/loss", "optimizer/grad_norm", "critic/loss", "critic/grad_norm")
        self.run.stop_if_not_finite(RL, step, metrics, watched, batch)
        return metrics

    def hand_over(self, version: int, clock: Clock) -> None:
        """Give the engine the new weights."""
        progress.begin("handing over", "the new weights")
        self.sampler.engine.sync(self.weights, version)
        clock.mark("sync")

    def _is_warming_up(self, step: int) -> bool:
        """Whether the critic still learns alone."""
        algorithm = self.run.setup.algorithm
        return algorithm.has_critic and step < algorithm.critic_warmup

    def _update(self, batch: dict[str, Array], moment: Moment, step: int) -> Sums:
        """Update the critic and the policy on every mini-batch of every epoch."""
        algorithm, hyper = self.run.setup.algorithm, self.run.setup.algorithm.hyper
        sizes, measured = algorithm.sizes, Sums()
        self._bring_optimiser(to_device)
        beside = self.roles.weights(*algorithm.plan.roles_in_update) if algorithm.plan.roles_in_update else {}
        minis = mini_batches(batch, sizes.mini_batch_size, sizes.epochs, moment.key, sizes.rows_per_prompt)
        for number, mini in enumerate(minis):
            now = moment.at_update(number)
            if self.update_critic:
                self.critic, found = self.update_critic(self.critic, self.critic_frozen, {}, mini, now, hyper)
                measured = merge(measured, found)
            if not self._is_warming_up(step):
                self.policy, found = self.update_policy(
                    self.policy, self.run.setup.weights.frozen, beside, mini, now, hyper
                )
                measured = merge(measured, found)
        self._bring_optimiser(to_host)
        return measured

    def _moment(self, step: int) -> Moment:
        algorithm, config = self.run.setup.algorithm, self.run.config
        return Moment(
            step=jnp.int32(step),
            total=jnp.int32(config.train.steps),
            key=keys.stream(config.run.seed, keys.STEP, step),
            coefficients={
                name: jnp.float32(part.build().coef(self.memory[name])) for name, part in algorithm.controllers.items()
            },
            update=jnp.int32(0),
        )

    def _after_step(self, measured: Sums, step: int, samples: int) -> None:
        """Tell the controllers what the step has observed, and let the roles follow the policy."""
        algorithm = self.run.setup.algorithm
        for term in (*algorithm.terms[POLICY], *algorithm.penalties):
            controller = algorithm.controllers.get(term.coefficient or "")
            if controller and term.coefficient:
                total, count = cast("tuple[Array, Array]", measured[f"{term.part.label}/mean"])
                observed = total / jnp.maximum(count, 1.0)
                self.memory[term.coefficient] = controller.build().update(
                    self.memory[term.coefficient], observed, samples
                )
        self.roles.move(self.policy.params, step + 1, algorithm.hyper)

    def _bring_optimiser(self, move: Callable[[Any], Any]) -> None:
        """Between updates the policy's optimiser may wait in the host's memory."""
        if self.run.config.memory.optimizer == "host":
            self.policy = Trained(self.policy.params, move(self.policy.optimiser))

    def evaluate(self, step: int) -> None:
        """Evaluate the current policy and keep some of its completions."""
        clock = Clock()
        progress.begin("evaluation")
        found = self.evaluate_now(progress.counted)
        clock.mark("eval")
        self.run.record(RL, step, found.metrics, clock.timings(0))
        self.run.folder.journal.prompts(RL, step, found.columns)
        self.run.folder.journal.samples(RL, step, found.records)


def _remembering(algorithm: Algorithm) -> Part:
    """The estimator that reads `state`."""
    return next(part for part in algorithm.at("advantages") if "state" in part.component.reads)

"""The trainer's program: the state of the RL phase and the compiled functions that advance it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dovetail import progress
from dovetail.devices import processes
from dovetail.devices.compiled import share
from dovetail.devices.mesh import to_device, to_host
from dovetail.host.replay import REPLAY, Replaying
from dovetail.plan.roles import CRITIC, POLICY
from dovetail.protocols import Weights
from dovetail.step.collect import Collector
from dovetail.step.mismatch import effective_sample_size
from dovetail.step.moment import Moment
from dovetail.step.parts import Part, Sums, merge, once, same_form
from dovetail.step.update import Trained, Update, mini_batches
from dovetail.train import in_flight
from dovetail.train.beside import Beside
from dovetail.train.channels import End, opening
from dovetail.train.drawing import Batch, Cursor, Message
from dovetail.train.drawn import Extras, Prompts
from dovetail.train.evaluation import Evaluation
from dovetail.train.metrics import Clock, means
from dovetail.train.models import in_mode
from dovetail.train.role_models import RoleModels
from dovetail.train.session import RL, Run
from dovetail.train.setup import Setup


@attrs.define(kw_only=True)
class Learner:
    """The trainer's program: its state, the compiled functions that advance it, and its end of the channels.

    Attributes:
        run: the run that it belongs to.
        policy: the trained parameters of the policy.
        critic: those of the critic, if the plan has one.
        critic_frozen: the critic's parameters that are not trained.
        roles: the models of the other roles.
        memory: the states of controllers, the estimator and the replay, by name.
        sampling: the source of batches and the destination of new weights.
        first: number of steps that were done when the process began.
    """

    run: Run
    policy: Trained
    critic: Trained | None
    critic_frozen: Any
    roles: RoleModels
    memory: dict[str, Any]
    sampling: End
    extras: Extras
    replay: Replaying | None
    first: int
    beside: Beside | None
    collect: Callable[..., Any]
    update_policy: Callable[..., Any]
    update_critic: Callable[..., Any] | None

    @classmethod
    def open(cls, run: Run, start: Any, extras: Extras) -> Learner:
        """Build the state, or restore it, and compile nothing yet."""
        setup, algorithm, config = run.setup, run.setup.algorithm, run.config
        # first, because they copy what they need of `start`, whose memory the first update takes over
        roles = RoleModels.open(run, start)
        policy = Trained(start, algorithm.optimisers["train"].init(start))
        graphdefs = {POLICY: setup.graphdef, **roles.graphdefs}
        critic, critic_frozen = None, None
        if algorithm.has_critic:
            graphdefs[CRITIC], critic, critic_frozen = _critic(setup, start)
        memory = {name: part.first_state(config.setting(name)) for name, part in algorithm.controllers.items()}
        replay = Replaying.of(config)
        if replay is not None:
            memory[REPLAY] = replay.init(extras.empty())
        if algorithm.remembering:
            memory["estimator"] = algorithm.remembering.first_state(setup.speakers.count)
        first, cut = 0, in_flight.Cut(cursor=Cursor(memory=Prompts.of(setup).init()))
        # restoring needs the structure of what was saved, so all of it has been made above, and is replaced here
        if saved := run.resumes(RL):
            first, curriculum = saved.step, cut.cursor.memory
            flying = in_flight.like(saved.data, policy.params)
            moving = roles.state()
            state = run.restore((policy, critic, memory | curriculum, moving, flying), policy, critic, moving)
            policy, critic, memory, following, flying = state
            roles.restore(following)
            cut = in_flight.restored(saved.data, flying, {name: memory.pop(name) for name in curriculum})
        beside = Beside.of(algorithm, graphdefs, setup.devices)
        collector = Collector(algorithm=algorithm, graphdefs=graphdefs, is_scored=beside is not None)
        update_policy = Update(algorithm=algorithm, graphdefs=graphdefs)
        update_critic = Update(algorithm=algorithm, graphdefs=graphdefs, model=CRITIC) if critic else None
        # last, because nobody would close what it opens if something after it failed
        open_channels = run.opening or opening(config, several=processes.several())
        weights = Weights(policy.params, setup.weights.frozen)
        sampling = open_channels(setup, extras, run.tasks, weights, first, cut)
        setup.hand_over.timings()  # discards the time of the initial move, which does not belong to a step
        return cls(
            run=run,
            policy=policy,
            critic=critic,
            critic_frozen=critic_frozen,
            roles=roles,
            memory=memory,
            sampling=sampling,
            extras=extras,
            replay=replay,
            first=first,
            beside=beside,
            collect=share(collector),
            update_policy=share(update_policy, donate=(0,)),
            update_critic=share(update_critic, donate=(0,)) if update_critic else None,
        )

    @property
    def weights(self) -> Weights:
        """The policy's current weights."""
        return Weights(self.policy.params, self.run.setup.weights.frozen)

    def state(self, step: int) -> tuple[Any, dict[str, Any]]:
        """Return the contents of a checkpoint after `step` steps: arrays, and JSON values."""
        cut = self.sampling.cut(step)
        memory = self.memory | cut.cursor.memory  # a copy, because the states change within a step
        return (self.policy, self.critic, memory, self.roles.state(), cut.arrays), cut.data

    def keep(self, step: int) -> None:
        """Register the current state, after `step` steps, to be saved if the run fails."""
        self.run.keep(RL, step, *self.state(step))

    def take(self, clock: Clock) -> Batch:
        """Return the next batch."""
        batch = self._take(clock)
        assert isinstance(batch, Batch), "evaluations are taken by take_evaluations"
        return batch

    def _take(self, clock: Clock) -> Message:
        """Return the next message; if messages are kept, it is written to the folder before it is used."""
        task = self.sampling.next
        assert task is not None, "a run takes what there is"
        message = self.sampling.take(clock)
        if (journal := self.run.folder.journal).keeps_messages:
            journal.message(in_flight.head(task, message), in_flight.bytes_of(message))
        return message

    def take_evaluations(self, step: int) -> None:
        """Record the evaluations that precede the next batch, and keep some of their completions."""
        while (task := self.sampling.next) is not None and task.batch is None:
            clock, journal = Clock(step), self.run.folder.journal
            found = self._take(clock)
            assert isinstance(found, Evaluation), "a task without a batch is an evaluation"
            journal.prompts(RL, task.version, found.columns)
            journal.samples(RL, task.version, found.records)
            self.run.record(RL, task.version, found.metrics, clock.timings(0), lambda: self.keep(step))

    def learn(self, taken: Batch, step: int, clock: Clock) -> dict[str, float]:
        """Estimate advantages, update the critic and the policy."""
        algorithm, hyper = self.run.setup.algorithm, self.run.setup.algorithm.hyper
        progress.begin("scoring")
        moment = self._moment(step)
        host_batch, found = self.extras.on_host(taken.fields, step)
        replayed: dict[str, float] = {}
        # replayed groups join before the forward passes: what a model computes of them is of today's weights
        if self.replay is not None:
            host_batch, self.memory[REPLAY], replayed = self.replay(self.memory[REPLAY], host_batch, step)
        # after the replay, because replayed completions have ages of their own
        if "staleness" in algorithm.plan:
            host_batch["staleness"] = np.int32(step) - host_batch["versions"]
        weights = self.roles.weights() | {POLICY: self.weights}
        if self.critic:
            weights[CRITIC] = Weights(self.critic.params, self.critic_frozen)
        rows = self.run.setup.devices.rows(host_batch)
        if self.beside is not None:
            scored, reported = self.beside(weights, rows, hyper)
            rows, found, weights = rows | scored, merge(found, reported), {}
        batch, measured, state = self.collect(weights, rows, moment, hyper, self.memory.get("estimator"))
        clock.mark_when_ready("scoring", batch)
        if algorithm.remembering:
            self.memory["estimator"] = state
        # an update reuses the memory of the old parameters, so from here on there is no earlier state to save
        self.run.forget()
        progress.begin("update")
        measured = merge(found, merge(measured, self._update(batch, moment, step)))
        # while only the critic learns, the policy's terms were not computed, and no model has anything to follow
        if not self._is_warming_up(step):
            self._after_step(measured, step, int(np.any(host_batch["mask"], axis=-1).sum()))
        terms = [*algorithm.terms[POLICY], *algorithm.penalties]
        coefficients = {
            f"{term.part.label}/coef": moment.coefficients[term.coefficient] for term in terms if term.coefficient
        }
        # after sampling, the step waits for the devices only here: everything before has only been dispatched
        metrics = taken.metrics | replayed | means(merge(measured, once(coefficients)))
        if "mismatch/ratio_mean" in metrics:
            metrics["mismatch/effective_sample_size"] = effective_sample_size(metrics)
        clock.mark("update")
        watched = ("policy_loss/loss", "optimizer/grad_norm", "critic/loss", "critic/grad_norm")
        self.run.stop_if_not_finite(RL, step, metrics, watched, batch)
        return metrics | taken.filtered

    def publish(self, version: int, clock: Clock) -> None:
        """Give the sampler the new weights."""
        self.sampling.publish(self.weights, version, clock)
        clock.note(self.run.setup.hand_over.timings())

    def _is_warming_up(self, step: int) -> bool:
        """Return whether only the critic learns in this step."""
        algorithm = self.run.setup.algorithm
        return algorithm.has_critic and step < algorithm.critic_warmup

    def _update(self, batch: dict[str, Array], moment: Moment, step: int) -> Sums:
        """Update the critic and the policy on every mini-batch of every epoch."""
        algorithm, hyper = self.run.setup.algorithm, self.run.setup.algorithm.hyper
        sizes, measured = algorithm.sizes, Sums()
        # with adamw it is twice as large as the parameters, and only updates need it
        self._bring_optimiser(to_device)
        beside = self.roles.weights(*algorithm.plan.roles_in_update) if algorithm.plan.roles_in_update else {}
        home = self.run.setup.devices
        place = home.of(CRITIC)
        minis = mini_batches(batch, sizes.mini_batch_size, sizes.epochs, moment.key, sizes.rows_per_prompt)
        for number, mini in enumerate(minis):
            now = moment.at_update(number)
            # both see the same mini-batch, and the advantages were estimated before: their order changes nothing
            if self.update_critic:
                given = (mini, now) if place is home else (place.rows(mini), place.whole(now))
                with place.use():
                    self.critic, found = self.update_critic(self.critic, self.critic_frozen, {}, *given, hyper)
                measured = merge(measured, found if place is home else home.whole(found))
            if not self._is_warming_up(step):
                self.policy, found = self.update_policy(
                    self.policy, self.run.setup.weights.frozen, beside, mini, now, hyper
                )
                measured = merge(measured, found)
        self._bring_optimiser(to_host)
        return measured

    def _moment(self, step: int) -> Moment:
        controllers = self.run.setup.algorithm.controllers
        coefficients = {name: self._coefficient(name, part) for name, part in controllers.items()}
        return Moment.of(self.run.config, step, coefficients)

    def _coefficient(self, name: str, controller: Part) -> Array:
        """Return a controller's coefficient; one that is not finite would spoil the weights in silence."""
        with controller.component.named("coef"):
            given = controller.build().coef(self.memory[name])
            coef = jnp.asarray(jnp.nan if given is None else given, jnp.float32)
        if coef.shape != () or not np.isfinite(coef):
            raise controller.component.wrong(f"gives {name} = {given!s:.80}; return one finite number", "coef")
        return coef

    def _after_step(self, measured: Sums, step: int, samples: int) -> None:
        """Update the controllers with the step's metrics, and let the roles follow the policy.

        `samples` completions had tokens to learn from; corrections and loss masks may have refused them all since.
        """
        algorithm = self.run.setup.algorithm
        for term in (*algorithm.terms[POLICY], *algorithm.penalties):
            controller = algorithm.controllers.get(term.coefficient or "")
            if controller and term.coefficient:
                total, count = cast("tuple[Array, Array]", measured[f"{term.part.label}/mean"])
                observed = total / jnp.maximum(count, 1.0)
                before, component = self.memory[term.coefficient], controller.component
                with component.named("update"):
                    after = controller.build().update(before, observed, jnp.where(count > 0, samples, 0))
                self.memory[term.coefficient] = same_form(component, before, after, "update")
        self.roles.move(self.policy.params, step + 1, algorithm.hyper)

    def _bring_optimiser(self, move: Callable[[Any], Any]) -> None:
        """Move the state of the policy's optimiser, which may be in host memory between updates."""
        if self.run.config.memory.optimizer == "host":
            self.policy = Trained(self.policy.params, move(self.policy.optimiser))


def _critic(setup: Setup, start: Any) -> tuple[Any, Trained, Any]:
    """Make the critic; return its structure, its trained parameters with their optimiser's state, and the others."""
    graphdef, weights = setup.models.critic(Weights(start, setup.weights.frozen))
    with setup.devices.of(CRITIC).use():
        trained = Trained(weights.trained, setup.algorithm.optimisers[CRITIC].init(weights.trained))
    return in_mode(graphdef, weights, setup.settled.mode), trained, weights.frozen

"""The trainer's program: the state of the RL phase and the compiled functions that advance it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import attrs
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dovetail import progress
from dovetail.devices import processes
from dovetail.devices.compiled import share
from dovetail.devices.mesh import Devices, to_device, to_host
from dovetail.host.replay import REPLAY, Replaying
from dovetail.plan.roles import CRITIC, POLICY
from dovetail.protocols import Weights
from dovetail.run.checkpoint import Saved
from dovetail.step.algorithm import Algorithm
from dovetail.step.collect import Collector
from dovetail.step.mismatch import effective_sample_size
from dovetail.step.moment import Moment
from dovetail.step.parts import Part, Sums, merge, once, same_form
from dovetail.step.update import Trained, Update, mini_batches
from dovetail.training import in_flight
from dovetail.training.beside import Beside
from dovetail.training.channels import End, opening
from dovetail.training.drawing import Batch, Cursor, Message
from dovetail.training.drawn import Extras, Prompts
from dovetail.training.evaluation import Evaluation
from dovetail.training.metrics import Clock, means
from dovetail.training.models import in_mode
from dovetail.training.role_models import RoleModels
from dovetail.training.session import RL, Run
from dovetail.training.setup import Setup

ESTIMATOR: Final = "estimator"
"""The name of the advantage estimator's state in a checkpoint, beside `REPLAY` and the settings of the controllers."""


@attrs.frozen(kw_only=True)
class Programs:
    """The compiled functions of a step; each is compiled when it is first called.

    Attributes:
        beside: the passes of models with devices of their own; None if all models are on the policy's.
        collect: the stages of the whole batch.
        update_policy: an update of the policy, in place.
        update_critic: an update of the critic, in place; None if there is no critic.
    """

    beside: Beside | None
    collect: Callable[..., Any]
    update_policy: Callable[..., Any]
    update_critic: Callable[..., Any] | None

    @classmethod
    def of(cls, algorithm: Algorithm, graphdefs: Mapping[str, Any], devices: Devices) -> Programs:
        """Return the programs of models with these structures, by role."""
        beside = Beside.of(algorithm, graphdefs, devices)
        update = functools.partial(Update, algorithm=algorithm, graphdefs=graphdefs)
        return cls(
            beside=beside,
            collect=share(Collector(algorithm=algorithm, graphdefs=graphdefs, is_scored=beside is not None)),
            update_policy=share(update(), donate=(0,)),
            update_critic=share(update(model=CRITIC), donate=(0,)) if algorithm.has_critic else None,
        )


@attrs.define(kw_only=True)
class Learner:
    """The trainer's program: its state, the compiled functions that advance it, and its end of the channels.

    Attributes:
        run: the run that it belongs to.
        policy: the trained parameters of the policy.
        critic: those of the critic, if the plan has one.
        critic_frozen: the critic's parameters that are not trained.
        roles: the models of the other roles.
        states: the states of controllers, the estimator and the replay, by name.
        sampling: the source of batches and the destination of new weights.
        extras: adds the fields of the host's stages.
        replay: adds earlier completions, if the run replays some.
        first: number of steps that were done when the process began.
        programs: the compiled functions.
    """

    run: Run
    policy: Trained
    critic: Trained | None
    critic_frozen: Any
    roles: RoleModels
    states: dict[str, Any]
    sampling: End
    extras: Extras
    replay: Replaying | None
    first: int
    programs: Programs

    @classmethod
    def open(cls, run: Run, start: Any, extras: Extras) -> Learner:
        """Build the state, or restore it, and compile nothing yet."""
        setup, algorithm = run.setup, run.setup.algorithm
        # first, because they copy what they need of `start`, whose memory the first update takes over
        roles = RoleModels.open(run, start)
        policy = Trained(start, algorithm.optimisers["train"].init(start))
        graphdefs = {POLICY: setup.graphdef, **roles.graphdefs}
        critic, critic_frozen = None, None
        if algorithm.has_critic:
            graphdefs[CRITIC], critic, critic_frozen = _critic(setup, start)
        replay = Replaying.of(run.config)
        states = _first_states(setup, replay, extras)
        first, cut = 0, in_flight.Cut(cursor=Cursor(curriculum=Prompts.of(setup).init()))
        # restoring needs the structure of what was saved, so all of it has been made above, and is replaced here
        if saved := run.resumes(RL):
            first = saved.step
            policy, critic, states, cut = _restored(run, saved, (policy, critic, states, cut), roles)
        programs = Programs.of(algorithm, graphdefs, setup.devices)
        # last, because nobody would close what it opens if something after it failed
        open_channels = run.opening or opening(run.config, several=processes.several())
        weights = Weights(policy.params, setup.weights.frozen)
        sampling = open_channels(setup, extras, run.tasks, weights, first, cut)
        setup.hand_over.timings()  # discards the time of the initial move, which does not belong to a step
        return cls(
            run=run,
            policy=policy,
            critic=critic,
            critic_frozen=critic_frozen,
            roles=roles,
            states=states,
            sampling=sampling,
            extras=extras,
            replay=replay,
            first=first,
            programs=programs,
        )

    @property
    def weights(self) -> Weights:
        """The policy's current weights."""
        return Weights(self.policy.params, self.run.setup.weights.frozen)

    def state(self, step: int) -> tuple[Any, dict[str, Any]]:
        """Return the contents of a checkpoint after `step` steps: arrays, and JSON values."""
        cut = self.sampling.cut(step)
        states = self.states | cut.cursor.curriculum  # a copy, because the states change within a step
        return (self.policy, self.critic, states, self.roles.state(), cut.arrays), cut.data

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
        """Estimate advantages, update the critic and the policy, and then all that follows them; return the metrics."""
        progress.begin("scoring")
        moment = self._moment(step)
        fields, measured, replayed = self._on_host(taken, step)
        batch, found = self._collect(fields, moment)
        measured = merge(measured, found)
        clock.mark_when_ready("scoring", batch)
        # an update reuses the memory of the old parameters, so from here on there is no earlier state to save
        self.run.forget()
        progress.begin("update")
        measured = merge(measured, self._update(batch, moment, step))
        # while only the critic learns, the policy's terms were not computed, and no model has anything to follow
        if not self._is_warming_up(step):
            self._after_step(measured, step, int(np.any(fields["mask"], axis=-1).sum()))
        # after sampling, the step waits for the devices only here: everything before has only been dispatched
        metrics = taken.metrics | replayed | self._means(measured, moment)
        clock.mark("update")
        watched = ("policy_loss/loss", "optimizer/grad_norm", "critic/loss", "critic/grad_norm")
        self.run.stop_if_not_finite(RL, step, metrics, watched, batch)
        return metrics | taken.filtered

    def _on_host(self, taken: Batch, step: int) -> tuple[dict[str, Any], Sums, dict[str, float]]:
        """Complete the fields of the host's stages; return them, their metrics, and those of the replay."""
        fields, measured = self.extras.on_host(taken.fields, step)
        replayed: dict[str, float] = {}
        # replayed groups join before the forward passes: what a model computes of them is of today's weights
        if self.replay is not None:
            fields, self.states[REPLAY], replayed = self.replay(self.states[REPLAY], fields, step)
        # after the replay, because replayed completions have ages of their own
        if "staleness" in self.run.setup.algorithm.plan:
            fields["staleness"] = np.int32(step) - fields["versions"]
        return fields, measured, replayed

    def _collect(self, fields: dict[str, Any], moment: Moment) -> tuple[dict[str, Array], Sums]:
        """Score the completions and estimate their advantages, on the devices."""
        setup, programs, hyper = self.run.setup, self.programs, self.run.setup.algorithm.hyper
        weights = self.roles.weights() | {POLICY: self.weights}
        if self.critic:
            weights[CRITIC] = Weights(self.critic.params, self.critic_frozen)
        rows, measured = setup.devices.rows(fields), Sums()
        if programs.beside is not None:
            scored, measured = programs.beside(weights, rows, hyper)
            rows, weights = rows | scored, {}
        batch, found, state = programs.collect(weights, rows, moment, hyper, self.states.get(ESTIMATOR))
        if setup.algorithm.remembering:
            self.states[ESTIMATOR] = state
        return batch, merge(measured, found)

    def _means(self, measured: Sums, moment: Moment) -> dict[str, float]:
        """Wait for a step's metrics, and return their values, with the coefficients that a controller may change."""
        algorithm = self.run.setup.algorithm
        terms = [*algorithm.terms[POLICY], *algorithm.penalties]
        coefficients = {
            f"{term.part.label}/coef": moment.coefficients[term.coefficient] for term in terms if term.coefficient
        }
        metrics = means(merge(measured, once(coefficients)))
        if "mismatch/ratio_mean" in metrics:
            metrics["mismatch/effective_sample_size"] = effective_sample_size(metrics)
        return metrics

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
            if self.programs.update_critic:
                given = (mini, now) if place is home else (place.rows(mini), place.whole(now))
                with place.use():
                    self.critic, found = self.programs.update_critic(self.critic, self.critic_frozen, {}, *given, hyper)
                measured = merge(measured, found if place is home else home.whole(found))
            if not self._is_warming_up(step):
                self.policy, found = self.programs.update_policy(
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
            given = controller.build().coef(self.states[name])
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
                before, component = self.states[term.coefficient], controller.component
                with component.named("update"):
                    after = controller.build().update(before, observed, jnp.where(count > 0, samples, 0))
                self.states[term.coefficient] = same_form(component, before, after, "update")
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


def _first_states(setup: Setup, replay: Replaying | None, extras: Extras) -> dict[str, Any]:
    """Return the states with which controllers, replay and estimator begin, by name."""
    algorithm = setup.algorithm
    states = {name: part.first_state(setup.config.setting(name)) for name, part in algorithm.controllers.items()}
    if replay is not None:
        states[REPLAY] = replay.init(extras.empty())
    if algorithm.remembering:
        states[ESTIMATOR] = algorithm.remembering.first_state(setup.speakers.count)
    return states


_Restorable = tuple[Trained, Trained | None, dict[str, Any], in_flight.Cut]
"""What a checkpoint replaces: the policy, the critic, the states by name, and the part of the sampler's program."""


def _restored(run: Run, saved: Saved, made: _Restorable, roles: RoleModels) -> _Restorable:
    """Return what the run was at its newest checkpoint, in the form of what was `made`, and restore the roles."""
    policy, critic, states, cut = made
    curriculum, flying, moving = cut.cursor.curriculum, in_flight.like(saved.data, policy.params), roles.state()
    state = run.restore((policy, critic, states | curriculum, moving, flying), policy, critic, moving)
    policy, critic, states, following, flying = state
    roles.restore(following)
    cut = in_flight.restored(saved.data, flying, {name: states.pop(name) for name in curriculum})
    return policy, critic, states, cut

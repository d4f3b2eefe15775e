"""Estimates the peak memory of each device in a step, from shapes only."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding

from dovetail.config import Config
from dovetail.devices.mesh import EACH, Devices
from dovetail.plan.placement import samples_here
from dovetail.plan.roles import CRITIC, INPUTS, POLICY, ROLLOUT
from dovetail.protocols import Settled, Weights
from dovetail.step.algorithm import Algorithm
from dovetail.step.forward import LOGITS_PER_CHUNK
from dovetail.step.gradients import Optimiser, accumulate
from dovetail.step.scoring import Scoring
from dovetail.step.update import Trained
from dovetail.training.models import Models, in_mode
from dovetail_memory.device import base
from dovetail_memory.liveness import Traced, traced
from dovetail_memory.micro_batch import Work, in_update, part_of, shares

PER_OPERATION: Final = 20 << 10
"""Bytes of all compiled programs of a run in the host's memory, per operation of its updates (measured, see
`docs/performance.md`)."""


@attrs.frozen
class Account:
    """The memory of each device in a step.

    Attributes:
        resident: bytes that stay throughout the step, by purpose.
        moments: additional bytes in each part of the step: gradients, activations, logits, the cache.
        roles: the roles on the device; `rollout` is the sampler.
    """

    resident: dict[str, int]
    moments: dict[str, int]
    roles: tuple[str, ...]

    @property
    def peak(self) -> int:
        """The peak bytes on a device."""
        return sum(self.resident.values()) + max(self.moments.values())


@attrs.frozen
class Footprint:
    """A step whose memory is planned."""

    config: Config
    algorithm: Algorithm
    models: Models
    devices: Devices
    known: dict[Settled, dict[tuple[int, ...], Account]] = attrs.field(factory=dict, init=False, eq=False)
    traces: dict[Settled, dict[str, Traced]] = attrs.field(factory=dict, init=False, eq=False)
    """A cache of traces, each of which takes seconds for a large model."""
    states: dict[str, tuple[Weights, Any]] = attrs.field(factory=dict, init=False, eq=False)

    def account(self, settled: Settled) -> Account:
        """Return the memory of the fullest devices in a step with this choice."""
        return max(self.accounts(settled).values(), key=lambda account: account.peak)

    def least(self) -> int:
        """Return what the fullest devices hold throughout a step at least, without tracing anything."""
        held = self._held()
        return base() + max(sum(_joined(held, roles).values()) for roles in self._together())

    def accounts(self, settled: Settled) -> dict[tuple[int, ...], Account]:
        """Return the memory of each device, by the indices of the devices with the same roles."""
        if settled not in self.known:
            held, moments = self._resident(settled), self._moments(settled)
            self.known[settled] = {
                numbers: Account(_joined(held, roles), self._at_once(_joined(moments, roles), roles), roles)
                for roles, numbers in self._together().items()
            }
        return self.known[settled]

    def _together(self) -> dict[tuple[str, ...], tuple[int, ...]]:
        """Return the devices with the same roles, by these roles."""
        roles = (*self._updated, *self.algorithm.follow, ROLLOUT)
        spans = {role: self.devices.of(role).span for role in dict.fromkeys(roles)}
        found = defaultdict(list)
        for number in sorted({number for span in spans.values() for number in span}):
            found[tuple(role for role, span in spans.items() if number in span)].append(number)
        return {roles: tuple(numbers) for roles, numbers in found.items()}

    def _moments(self, settled: Settled) -> dict[str, dict[str, int]]:
        """Return the additional bytes of a role's devices, by role and part of the step."""
        found = {model: {f"update of the {model}": self._updates(settled)[model].peak} for model in self._updated}
        if self.config.memory.optimizer == "host":
            found[POLICY][f"update of the {POLICY}"] += self.devices.bytes(self._trained(POLICY)[1])
        sampling = {"sampling": self._sampling()}
        if ROLLOUT in self.devices.apart:  # the sampler uses the old weights until the new ones have been copied
            sampling |= {"new weights": self.devices.of(ROLLOUT).bytes(self._trained(POLICY)[0].trained)}
        scored = [role for role in self.algorithm.follow if role in self.devices.apart]
        return (
            found
            | {ROLLOUT: sampling}
            | {role: {f"scoring by the {role}": self._scoring(role, settled)} for role in scored}
        )

    def _at_once(self, moments: dict[str, int], roles: tuple[str, ...]) -> dict[str, int]:
        """Add the memory of sampling to that of updates if the sampler runs ahead."""
        if not (self.config.train.staleness and ROLLOUT in roles):
            return moments
        beside = moments.get("sampling", 0)
        return {name: size + beside * name.startswith("update") for name, size in moments.items()}

    def _updates(self, settled: Settled) -> dict[str, Traced]:
        if settled not in self.traces:
            self.traces[settled] = {model: self._update(model, settled) for model in self._updated}
        return self.traces[settled]

    @property
    def _updated(self) -> tuple[str, ...]:
        return (POLICY, CRITIC) if self.algorithm.has_critic else (POLICY,)

    def _resident(self, settled: Settled) -> dict[str, dict[str, int]]:
        """Return the bytes that a role's devices hold throughout a step, by role and purpose."""
        found = self._held()
        if own := base():
            programs = PER_OPERATION * sum(found.operations for found in self._updates(settled).values())
            found[POLICY] |= {"the process itself": own, "compiled programs": programs}
        return found

    def _held(self) -> dict[str, dict[str, int]]:
        """Return the bytes of the models and optimisers on a role's devices, by role and purpose."""
        weights, state = self._trained(POLICY)
        waits = self.config.memory.optimizer == "host"
        policy = {"parameters": self.devices.bytes(weights), "optimizer": 0 if waits else self.devices.bytes(state)}
        if self.config.train.replay_choices:
            policy["recorded choices"] = self._recorded()
        found = {POLICY: policy, ROLLOUT: self._sampled_from(weights)}
        for role in self.algorithm.follow:
            own = self.models.role_shapes(role)[1] if self._own(role) else weights
            shares = not self._own(role) and role not in self.devices.apart
            found[role] = {role: self.devices.of(role).bytes(own.trained if shares else own)}
        if self.algorithm.has_critic:
            weights, state = self._trained(CRITIC)
            there = self.devices.of(CRITIC)
            found[CRITIC] = {"critic's parameters": there.bytes(weights), "critic's optimizer": there.bytes(state)}
        return found

    def _recorded(self) -> int:
        """Return the bytes of the model's choices at each token of a step's prompts and completions."""
        train, each = self.config.train, self.models.choices() * np.dtype(np.int16).itemsize
        tokens = train.max_prompt_tokens + self.config.sampling.max_tokens
        return train.prompts * train.group_size * tokens * each // self.devices.parts

    def _sampled_from(self, weights: Weights) -> dict[str, int]:
        """Return the bytes of the sampler's own copies of weights."""
        if self._elsewhere:
            return {}
        ahead, there = self.config.train.staleness, self.devices.of(ROLLOUT)
        copies = {"weights in flight": (ahead + 1) * there.bytes(weights.trained)} if ahead else {}
        if there is self.devices:  # an update reuses the old weights' memory, so a sampler that runs ahead needs copies
            return copies
        return {"sampler's parameters": there.bytes(weights.frozen if ahead else weights)} | copies

    @property
    def _elsewhere(self) -> bool:
        """Whether sampling takes none of the devices' memory; that of a CPU is the host's, which has the copies."""
        return not samples_here(self.config) and not base()

    def _scoring(self, role: str, settled: Settled) -> int:
        """Return the bytes of a role's passes over a whole step in micro-batches, in addition to the weights."""
        graphdef, weights = self.models.role_shapes(role) if self._own(role) else self.models.shapes()
        parts = self.devices.of(role).parts
        alone = self._of_one_device(settled, parts)
        own = {POLICY: in_mode(graphdef, weights, settled.mode)}
        scoring = Scoring(algorithm=alone.apply(self.algorithm), graphdefs=own, roles=(role,))
        batch = self._batch(role, alone.micro_batch_size)

        def passes(weights: Any, batch: Any, hyper: Any) -> Any:
            return scoring({role: weights}, batch, hyper)

        found = traced(passes, weights, batch, self.algorithm.hyper).peak - _bytes(weights)
        return found + self._keys_of_others(role, graphdef, weights, alone.micro_batch_size)

    def _trained(self, model: str) -> tuple[Weights, Any]:
        """Return the shapes of a model's weights and of its optimiser's state, which take a quarter of a second."""
        if model not in self.states:
            weights = (self.models.shapes() if model == POLICY else self.models.critic_shapes())[1]
            self.states[model] = weights, jax.eval_shape(_optimiser(self.algorithm, model).init, weights.trained)
        return self.states[model]

    def _update(self, model: str, settled: Settled) -> Traced:
        """Return the trace of a model's update, without the weights that it reads.

        Gradients are sharded like them, but on CPUs XLA adds up whole ones before each device keeps its part.
        """
        function, arguments = self.update(model, settled)
        of_params, weights = self._gathered(model, arguments[0].params), self._trained(model)[0].trained
        gathered = [*of_params, *[0] * len(jax.tree.leaves(arguments[0].optimiser))]
        gathered += [size for others in arguments[1:3] for size in self._gathered(model, others)]
        found = traced(function, *arguments, donated=1, gathered=gathered)
        held = self.devices.of(model).bytes(weights) + sum(of_params) * (jax.default_backend() == "cpu")
        elsewhere = (1 - held / _bytes(weights)) * 4 * sum(leaf.size for leaf in jax.tree.leaves(weights))
        graphdef = (self.models.shapes() if model == POLICY else self.models.critic_shapes())[0]
        rows = self._of_one_device(settled, self.devices.of(model).parts).micro_batch_size
        keys = self._keys_of_others(model, graphdef, self._trained(model)[0], rows)
        return attrs.evolve(found, peak=found.peak - _bytes(arguments[:3]) - int(elsewhere) + keys)

    def _keys_of_others(self, role: str, graphdef: Any, weights: Weights, rows: int) -> int:
        """Return the bytes of the keys and values of one layer that a device gathers from those with the same rows.

        Attention reads those of whole rows; their gradients are in float32 until each device has added up its own.
        """
        mesh, model = self.config.mesh_of(role), nnx.merge(graphdef, *weights)
        if mesh.cp == 1:
            return 0
        decoder = model.trunk if role == CRITIC else model
        tokens = self.config.train.max_prompt_tokens + self.config.sampling.max_tokens
        each = max(jax.tree.leaves(jax.eval_shape(lambda: decoder.init_cache(rows, tokens))), key=lambda x: x.size)
        return 2 * each.size * (each.dtype.itemsize + 4) * (mesh.cp - 1) // (mesh.cp * mesh.tp)

    def _gathered(self, model: str, weights: Any) -> list[int]:
        """Return, for each array, the bytes that a device collects from those that share a batch."""
        devices = self.devices.of(model)

        def elsewhere(variable: nnx.Variable) -> int:
            value = variable.get_value()
            sharding = devices.place(variable.get_metadata().get("axes"), value.shape)
            if not isinstance(sharding, NamedSharding) or EACH not in sharding.spec:
                return 0
            return (shares(devices) - 1) * math.prod(sharding.shard_shape(value.shape)) * value.dtype.itemsize

        return [elsewhere(each) for each in jax.tree.leaves(weights, is_leaf=lambda x: isinstance(x, nnx.Variable))]

    def update(self, model: str, settled: Settled) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return a function like a model's update, whose first argument is donated, and its arguments' shapes."""
        graphdef = (self.models.shapes() if model == POLICY else self.models.critic_shapes())[0]
        weights, state = self._trained(model)
        parts = self.devices.of(model).parts
        beside = self.algorithm.plan.roles_in_update if model == POLICY else ()
        alone = self._of_one_device(settled, parts)
        step = _proxy(alone.apply(self.algorithm), model, in_mode(graphdef, weights, settled.mode))
        others = {role: self._role_shapes(role) for role in beside}
        graphdefs = {role: in_mode(*self.models.role_shapes(role), settled.mode) for role in beside if self._own(role)}
        batch, key = self._batch(model, alone.micro_batch_size), jax.eval_shape(lambda: jax.random.key(0))
        given = Trained(weights.trained, state), weights.frozen, others
        return step(graphdefs), (*given, batch, key, self.algorithm.hyper)

    def _own(self, role: str) -> bool:
        return self.models.has_own(role)

    def _role_shapes(self, role: str) -> Weights:
        return self.models.role_shapes(role)[1] if self._own(role) else self.models.shapes()[1]

    def _of_one_device(self, settled: Settled, parts: int) -> Settled:
        """Return the largest share of one of the devices that divide a micro-batch; it may be less than a group."""
        return attrs.evolve(settled, micro_batch_size=-(-settled.micro_batch_size // parts))

    def _batch(self, role: str, micro: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the shapes of the fields that models read, for a few micro-batches of one of a role's devices."""
        rows = min(max(1, in_update(self.config).rows // self.devices.of(role).parts), 2 * micro)
        lengths = {"prompt": self.config.train.max_prompt_tokens, "": self.config.sampling.max_tokens}
        sizes = {name: part_of(tokens, self.config.mesh_of(role)) for name, tokens in lengths.items()}
        found = {"draw_ids": jax.ShapeDtypeStruct((rows,), jnp.int32)}
        for inputs in INPUTS.values():
            for name, field in inputs.fields.items():
                length = sizes["prompt" if name.startswith("prompt") else ""]
                found[field] = jax.ShapeDtypeStruct((rows, length), bool if name.endswith("mask") else jnp.int32)
        return found

    def _sampling(self) -> int:
        """Return the bytes of the cache, and of the logits of one token per completion."""
        if self._elsewhere:
            return 0
        graphdef, weights = self.models.shapes()
        model, train = nnx.merge(graphdef, *weights), self.config.train
        rows = train.prompts_of_round * train.group_size
        cached = cache_bytes(model, self.config, train.prompts_of_round, rows)
        return (cached + 2 * 4 * rows * model.vocab_size) // shares(self.devices.of(ROLLOUT))

    def rough(self, settled: Settled, work: Work) -> int:
        """Return an upper bound of a step's bytes, from the decoder's bytes per token, without tracing an update."""
        graphdef, weights = self.models.shapes()
        trained = 4 * sum(leaf.size for leaf in jax.tree.leaves(weights.trained))
        ahead = 0 if self._elsewhere else self.config.train.staleness and (self.config.train.staleness + 1) * trained
        models = 2 + len(self.algorithm.follow) + 2 * self.algorithm.has_critic
        tokens = (work.prompt_tokens + work.max_tokens) * settled.micro_batch_size // self.devices.parts
        vocabulary = nnx.merge(graphdef, *weights).vocab_size
        logits = 4 * max(LOGITS_PER_CHUNK, (settled.positions or 1) * vocabulary)
        activations = 2 * work.per_token(graphdef, weights) * tokens
        return base() + ahead + models * _bytes(weights) + 8 * trained + activations + 6 * logits + self._sampling()


def cache_bytes(model: Any, config: Config, prompts: int, rows: int) -> int:
    """Return the bytes of the keys and values of so many prompts, and of so many completions that are decoded at once.

    An engine that declares `slots` decodes no more than so many.
    """
    at_once = config.choice("train.rollout").declares.get("slots") or rows
    sizes = [(prompts, config.train.max_prompt_tokens), (min(rows, at_once), config.sampling.max_tokens)]
    return _bytes([jax.eval_shape(lambda size=size: model.init_cache(*size)) for size in sizes])


def _proxy(algorithm: Algorithm, model: str, graphdef: Any) -> Any:
    """Return a function like an update, with a sum in place of the loss, which needs little memory."""

    def with_roles(graphdefs: Mapping[str, Any]) -> Any:
        scoring = Scoring(algorithm=algorithm, graphdefs={model: graphdef, POLICY: graphdef, **graphdefs})
        optimiser = _optimiser(algorithm, model)

        def update(trained: Any, frozen: Any, others: Any, batch: Any, key: Any, hyper: Any) -> Any:
            def loss(params: Any, micro: Any) -> Any:
                found, _ = scoring.live(model, others | {model: Weights(params, frozen)}, micro, hyper, key)
                arrays = [x for x in jax.tree.leaves(found) if jnp.issubdtype(x.dtype, jnp.floating)]
                return sum((jnp.sum(jnp.sin(x.astype(jnp.float32))) for x in arrays), jnp.float32(0)), {}

            rows = algorithm.sizes.micro_batch_size
            gradient, total, _ = accumulate(loss, trained.params, batch, rows)
            step, steps = jnp.int32(0), jnp.int32(1)
            params, state, _ = optimiser.apply(trained.params, trained.optimiser, gradient, step, steps, hyper)
            return Trained(params, state), total

        return update

    return with_roles


def _joined(by_role: Mapping[str, Mapping[str, int]], roles: tuple[str, ...]) -> dict[str, int]:
    """Return the memory of devices with some roles."""
    return {name: size for role in roles for name, size in by_role.get(role, {}).items() if size}


def _optimiser(algorithm: Algorithm, model: str) -> Optimiser:
    return algorithm.optimisers["train" if model == POLICY else model]


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

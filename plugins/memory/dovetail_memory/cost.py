"""Estimates a step's cost: parameters, bytes per device and floating-point operations, without weights or data.

Nothing is allocated: models are abstract, sizes come from `jax.eval_shape`, operations from XLA's own count of the
lowered forward and backward pass of one row. So every model component is counted, whatever its architecture; a note
says so where that has loops, of which XLA counts one round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from flax import nnx
from jax.extend import core

from dovetail.config import Config
from dovetail.devices.mesh import Devices
from dovetail.errors import DovetailError
from dovetail.plan.roles import CRITIC, INPUTS, POLICY
from dovetail.plan.sizes import rows_of_step
from dovetail.protocols import DoesNotFit, Weights
from dovetail.step.algorithm import Algorithm, assemble
from dovetail.step.buckets import described
from dovetail.training.models import Models, in_mode
from dovetail.training.settled import sizing
from dovetail_memory.footprint import Footprint


@attrs.frozen(kw_only=True)
class Place:
    """Devices with the same roles, by their indices, and the memory of each of them; see `Cost`."""

    devices: tuple[int, ...]
    roles: tuple[str, ...]
    memory: dict[str, int]
    moments: dict[str, int]
    peak: int


@attrs.frozen(kw_only=True)
class Cost:
    """The size of a step.

    Attributes:
        parameters: number of parameters of the policy, including an adapter's.
        trained: number of those that are trained.
        tokens: the greatest number of tokens that a step samples, rows times `sampling.max_tokens`.
        choice: the choice of how to compute the step so that it fits into memory.
        memory: bytes on each device throughout a step, by purpose; if roles are apart, those of the fullest devices.
        moments: additional bytes in each part of a step: gradients, activations, logits, the cache.
        peak: the greatest number of bytes on a device.
        flops: operations of a whole step on all devices, by purpose; a multiplication and an addition count as two.
        notes: assumptions of the estimate.
        placement: the same figures for all devices, grouped by roles.
    """

    parameters: int
    trained: int
    tokens: int
    choice: str
    memory: dict[str, int]
    moments: dict[str, int]
    peak: int
    flops: dict[str, float]
    notes: tuple[str, ...]
    placement: tuple[Place, ...]


def estimate(config: Config) -> Cost:
    """Return the cost of a step of this config.

    Raises:
        DovetailError: if the model cannot be described without its weights.
    """
    algorithm = assemble(config)
    notes: list[str] = []
    devices = Devices.abstract(config.mesh, config.apart)
    models = Models(config=config, devices=devices, vocab_size=_vocabulary(config, notes))
    models.check_algorithm(algorithm)
    try:
        settled = sizing(config).update(config, algorithm, models, devices)
    except DoesNotFit as error:
        if error.least is None:
            raise
        settled = error.least
        notes.append(str(error))
    graphdef, weights = models.shapes()
    policy = _Model(config, devices, in_mode(graphdef, weights, settled.mode), weights, trunk=lambda model: model)
    step = Footprint(config, algorithm, models, devices)
    account = step.account(settled)
    work = dict.fromkeys((POLICY, *algorithm.follow), policy.work(_project))
    for role in filter(models.has_own, algorithm.follow):
        own = _Model(config, devices, *models.role_shapes(role), trunk=lambda model: model)
        work[role] = own.work(_project)
    if any(each.loops for each in work.values()):
        notes.append("operations in loops (attention in blocks, experts) are counted for one round: there are more")
    epochs, more = algorithm.sizes.epochs, rows_of_step(config) / policy.rows  # earlier completions are scored again
    flops = {"rollout": work[POLICY].forward + work[POLICY].one_of_each * ("greedy_scores" in algorithm.plan)}
    flops |= {"scoring": more * _passes(algorithm, work, live=False)}
    flops |= {"update": more * epochs * _passes(algorithm, work, live=True)}
    if algorithm.has_critic:
        critic = _Model(config, devices, *models.critic_shapes(), trunk=lambda model: model.trunk)
        own = critic.work(lambda model, hidden: hidden @ model.weight[...].astype(hidden.dtype))
        flops["critic"] = more * own.forward * (1 + own.gradient * epochs)
    return Cost(
        parameters=_count(policy.weights),
        trained=_count(policy.weights.trained),
        tokens=policy.rows * config.sampling.max_tokens,
        choice=", ".join(filter(None, (str(settled), described(algorithm.sizes, config.sampling.max_tokens)))),
        memory=account.resident,
        moments=account.moments,
        peak=account.peak,
        flops={name: count for name, count in flops.items() if count},
        notes=tuple(notes),
        placement=tuple(
            Place(devices=numbers, roles=each.roles, memory=each.resident, moments=each.moments, peak=each.peak)
            for numbers, each in step.accounts(settled).items()
        ),
    )


@attrs.frozen(kw_only=True)
class _Work:
    """The operations of a model's passes.

    Attributes:
        forward: operations of a pass over a step's completions, with each prompt processed once for its group.
        one_of_each: operations of a pass over a single text per prompt: an answer, a greedy completion.
        gradient: the cost of a gradient in forward passes, including its own forward pass.
        loops: whether the passes have loops, of which XLA counts a single round.
    """

    forward: float
    one_of_each: float
    gradient: float
    loops: bool

    def forward_of(self, inputs: str) -> float:
        """Return the operations of one forward pass over some inputs."""
        return self.one_of_each if INPUTS[inputs].shared else self.forward


def _passes(algorithm: Algorithm, work: Mapping[str, _Work], *, live: bool) -> float:
    """Return the operations of a plan's passes; only the model of the pass has a gradient, not those beside it."""
    return sum(
        work[each.role].forward_of(each.inputs) * (work[each.role].gradient if live else 1)
        + sum(work[role].forward_of(each.inputs) for role in each.beside)
        for each in algorithm.plan.passes_of(live=live)
        if each.role != CRITIC
    )


def _project(model: Any, hidden: jax.Array) -> jax.Array:
    return model.logits(hidden)


@attrs.frozen
class _Model:
    """An abstract model, with access to the decoder in it."""

    config: Config
    devices: Devices
    graphdef: Any
    weights: Weights
    trunk: Callable[[Any], Any] = attrs.field(kw_only=True)

    @property
    def rows(self) -> int:
        return self.config.train.prompts * self.config.train.group_size

    def work(self, head: Callable[[Any, jax.Array], jax.Array]) -> _Work:
        """Count the operations of passes; the head is applied only at completion positions."""
        prompt, answer = self.config.train.max_prompt_tokens, self.config.sampling.max_tokens

        def whole(trained: Any, frozen: Any) -> jax.Array:
            model, hidden = self._hidden(trained, frozen, 1, prompt + answer)
            return jnp.sum(head(model, hidden[:, prompt:]).astype(jnp.float32))

        traced = jax.jit(whole).trace(*self.weights)
        row, prompts = _flops(traced), self.config.train.prompts
        of_prompt = jax.jit(lambda trained, frozen: self._hidden(trained, frozen, 1, prompt)[1])
        prompt_only = _flops(of_prompt.trace(*self.weights))
        return _Work(
            forward=row * self.rows - prompt_only * (self.rows - prompts),
            one_of_each=row * prompts,
            gradient=_flops(jax.jit(jax.grad(whole)).trace(*self.weights)) / row,
            loops=_has_loops(traced.jaxpr),
        )

    def _hidden(self, trained: Any, frozen: Any, rows: int, length: int) -> tuple[Any, jax.Array]:
        model = nnx.merge(self.graphdef, trained, frozen)
        tokens = jnp.zeros((rows, length), jnp.int32)
        return model, self.trunk(model)(tokens, jnp.ones_like(tokens, dtype=bool))[0]


def _vocabulary(config: Config, notes: list[str]) -> int | None:
    """Return the tokenizer's vocabulary size if the tokenizer can be created; None leaves it to the model."""
    try:
        task: Any = config.choice("train.task").bind()
        maker: Any = config.choice("train.tokenizer").bind()
        return maker.make(task.corpus()).vocab_size
    except DovetailError as error:
        notes.append(f"the model's own vocabulary is counted, as there is no tokenizer here: {error}")
        return None


def _flops(traced: Any) -> float:
    return float(traced.lower().cost_analysis()["flops"])


def _has_loops(jaxpr: Any) -> bool:
    """Return whether there is a loop, also in what is called."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name in ("scan", "while"):
            return True
        values = jax.tree.leaves([*equation.params.values()], is_leaf=_is_jaxpr)
        if any(_has_loops(value) for value in values if _is_jaxpr(value)):
            return True
    return False


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def _bytes(shapes: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def _count(weights: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(weights))

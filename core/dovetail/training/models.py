"""The models of a run: created or loaded, adapted, sharded, and split into trained and frozen parameters."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import attrs
import jax
from flax import nnx

from dovetail import progress
from dovetail.config import Config
from dovetail.config.schema import MESH
from dovetail.devices.mesh import Devices, check_divides
from dovetail.errors import ConfigError, DovetailError
from dovetail.plan.roles import CRITIC, POLICY
from dovetail.plan.routing import SETTING
from dovetail.protocols import (
    Adapter,
    ChecksTokenizer,
    ModelMaker,
    Tokenizer,
    Traits,
    ValueHead,
    Weights,
    WithValueHead,
)
from dovetail.step import keys
from dovetail.step.algorithm import Algorithm, Follow
from dovetail.step.forward import ValueModel


@attrs.frozen(kw_only=True)
class Models:
    """Makes the models of a run."""

    config: Config
    devices: Devices
    vocab_size: int | None
    _described: dict[str, Any] = attrs.field(factory=dict, init=False, repr=False, eq=False)

    def policy(self) -> tuple[Any, Weights]:
        """Return the policy's structure and weights."""
        self._tell("policy", self.shapes)
        return self._spread(self._make("train", keys.INIT), "train")

    def critic(self, policy: Weights) -> tuple[Any, Weights]:
        """Return the critic's structure and weights; with `critic.init_from_policy` its trunk begins as the policy's.

        A trained trunk is then a copy, but an adapted one shares the policy's arrays if those are frozen, too. This
        applies only if both have the same model, and store it in the same way: an adapter may quantise one of them.
        """
        self._tell("critic", self.critic_shapes)
        trunk, source = self._make("critic", keys.CRITIC_INIT), _base(nnx.merge_state(*policy))
        maker = self._maker("critic")
        if self.config.critic.init_from_policy and maker == self._maker("train") and _alike(trunk, source):
            shared = _adapted(trunk) and bool(jax.tree.leaves(policy.frozen))
            nnx.update(trunk, source if shared else jax.tree.map(lambda x: x.copy(), source))
        head = maker.value_head() if isinstance(maker, WithValueHead) else None
        return self._spread(with_head(trunk, head), "critic")

    def role(self, name: str) -> tuple[Any, Weights]:
        """Return the structure and weights of a model role that has a model of its own."""
        self._tell(name, lambda: self.role_shapes(name))
        return self._spread(self._make(name, keys.ROLE_INIT, zlib.crc32(name.encode())), name)

    def check_tokenizer(self, section: str, tokenizer: Tokenizer) -> None:
        """Refuse a model whose tokenizer assigns other ids than the run's; no weights are read.

        Raises:
            ConfigError: naming the setting.
        """
        with _named(section):
            if isinstance(maker := self._maker(section), ChecksTokenizer):
                maker.check_tokenizer(tokenizer)

    def check_roles(self, follow: Mapping[str, Follow], tokenizer: Tokenizer) -> None:
        """Refuse a role's own model if the role follows the policy, or the model does not fit the run's tokenizer.

        No weights are read.

        Raises:
            ConfigError: naming the settings.
        """
        for role in filter(self.has_own, follow):
            if follow[role].moves:
                raise ConfigError(
                    f"roles.{role} = '{follow[role].part.component.name}' follows the policy, so its weights must be"
                    f" the policy's; set {role}.model to None, or roles.{role} = 'frozen'"
                )
            self.check_tokenizer(role, tokenizer)
            with _named(role):
                self._abstract(role)

    def check_algorithm(self, algorithm: Algorithm) -> None:
        """Refuse models that do not fit their meshes, or cannot read rows as the algorithm packs them.

        Raises:
            ConfigError: naming the setting.
        """
        self.check_meshes((POLICY, *algorithm.follow, *self.devices.apart))
        if self.config.train.replay_choices:
            self.choices()
        if algorithm.sizes.segments > 1:
            self.check_packing((POLICY, *algorithm.follow, *([CRITIC] if algorithm.has_critic else [])))

    def choices(self) -> int:
        """Return how many choices the policy makes at each token.

        Raises:
            ConfigError: if it makes none, so that there is nothing to replay.
        """
        model = self._abstract("train")
        number = Traits.of(model).choices
        if not number:
            name = self.config.choice("train.model").component.name
            raise ConfigError(
                f"{SETTING} = True ({self.config.origins[SETTING]}): train.model = '{name}' is a {type(model).__name__}"
                f" that makes no choices, as a mixture of experts does; set {SETTING} = False"
            )
        return number

    def check_meshes(self, roles: Iterable[str]) -> None:
        """Refuse meshes that do not divide the models of these roles; see `check_divides`.

        Raises:
            ConfigError: naming the setting.
        """
        for role in roles:
            own = f"{role}/{MESH}" in self.config.sections
            model: Any = self._abstract(role if f"{role}.model" in self.config.choices else "train")
            place = f"{role}/{MESH}" if own else MESH
            check_divides(self.config.mesh_of(role), place, model.vocab_size, Traits.of(model).heads)

    def check_packing(self, roles: Iterable[str]) -> None:
        """Refuse models of these roles that cannot read several completions in a row.

        Raises:
            ConfigError: naming the model and why it cannot.
        """
        for role in roles:
            section = role if role == CRITIC or self.has_own(role) else "train"
            model = self._abstract(section)
            if not Traits.of(model).packs:
                name = self.config.choice(f"{section}.model").component.name
                raise ConfigError(
                    f"{section}.model = '{name}': {type(model).__name__} does not take 'texts', the text of each token,"
                    " so it cannot read several completions in a row; set train.packing = False"
                )

    def has_own(self, name: str) -> bool:
        """Return whether a role has a model of its own; otherwise it begins with the policy's weights."""
        return f"{name}.model" in self.config.choices

    def shapes(self) -> tuple[Any, Weights]:
        """Return the policy's structure and the shapes of its weights; nothing is read or allocated."""
        return self._shapes("train")

    def role_shapes(self, name: str) -> tuple[Any, Weights]:
        """Return the structure and shapes of a model role that has a model of its own."""
        return self._shapes(name)

    def critic_shapes(self) -> tuple[Any, Weights]:
        """Return the critic's structure and the shapes of its weights."""
        return split(nnx.eval_shape(with_head, self._abstract("critic")))

    def sizes(self, section: str) -> tuple[int, int]:
        """Return the width and the vocabulary of a section's model."""
        model: Any = self._abstract(section)
        return model.width, model.vocab_size

    def _tell(self, role: str, shapes: Callable[[], tuple[Any, Weights]]) -> None:
        """Tell observers which model is being loaded."""
        if progress.is_watched():
            size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes()[1]))
            progress.begin(progress.LOADING, f"{role}, {progress.in_bytes(size)}")

    def _maker(self, section: str) -> ModelMaker:
        return self.config.choice(f"{section}.model").bind()

    def _abstract(self, section: str) -> nnx.Module:
        """Return a model with shapes in place of arrays, which the caller may change."""
        graphdef, weights = self._shapes(section)
        return nnx.merge(graphdef, *weights, copy=True)

    def _shapes(self, section: str) -> tuple[Any, Weights]:
        """Return the structure of a model and the shapes of its weights.

        It is described once: for a model of 30 layers that takes a second, and a start asks a dozen times.
        """
        if section not in self._described:
            self._described[section] = split(self._describe(section))
        return self._described[section]

    def _describe(self, section: str) -> nnx.Module:
        model = self._maker(section).abstract(self.vocab_size)
        if f"{section}.adapter" not in self.config.choices:
            return model
        adapter: Adapter = self.config.choice(f"{section}.adapter").bind()
        return nnx.eval_shape(lambda base: adapter.apply(base, rngs=nnx.Rngs(0)), model)

    def _make(self, section: str, *stream: int) -> nnx.Module:
        assert self.vocab_size is not None, "without a tokenizer there are only shapes"
        own = self.devices.apart.get(section)
        with own.use() if own else nullcontext():
            rngs = nnx.Rngs(params=keys.stream(self.config.run.seed, *stream))
            model = self._maker(section).make(self.vocab_size, rngs=rngs, place=self.devices.of(section).place)
            if f"{section}.adapter" in self.config.choices:
                adapter: Adapter = self.config.choice(f"{section}.adapter").bind()
                model = adapter.apply(model, rngs=rngs)
        return model

    def _spread(self, model: nnx.Module, section: str) -> tuple[Any, Weights]:
        graphdef, weights = split(model)
        return graphdef, Weights(*map(self.devices.of(section).spread, weights))


def split(model: nnx.Module) -> tuple[Any, Weights]:
    """Return a model's structure and weights; only an adapter's parameters are trained if it has one, otherwise all."""
    graphdef, trained, frozen = nnx.split(model, nnx.LoRAParam if _adapted(model) else nnx.Param, ...)
    return graphdef, Weights(trained, frozen)


def in_mode(graphdef: Any, weights: Weights, mode: str | None) -> Any:
    """Return the structure of a model with another mode."""
    if mode is None:
        return graphdef
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), weights)
    return nnx.graphdef(_changed(nnx.merge(graphdef, *shapes), mode))


def _changed(model: Any, mode: str) -> Any:
    """Set the mode of a model, or of the decoder in a critic."""
    if isinstance(model, ValueModel):
        model.trunk = _changed(model.trunk, mode)
        return model
    return model.in_mode(mode) if Traits.of(model).modes else model


def with_head(trunk: Any, head: ValueHead | None = None) -> ValueModel:
    """Return a critic over a decoder."""
    return ValueModel(trunk, trunk.width, nnx.LoRAParam if _adapted(trunk) else nnx.Param, head)


@contextmanager
def _named(section: str) -> Iterator[None]:
    try:
        yield
    except DovetailError as error:
        raise ConfigError(f"{section}.model: {error}") from error


def _adapted(model: nnx.Module) -> bool:
    return bool(jax.tree.leaves(nnx.state(model, nnx.LoRAParam)))


def _alike(trunk: nnx.Module, source: nnx.State) -> bool:
    both = map(nnx.to_flat_state, (_base(nnx.state(trunk)), source))
    own, other = ([(path, leaf.shape, leaf.dtype) for path, leaf in each] for each in both)
    return own == other


def _base(state: nnx.State) -> nnx.State:
    return nnx.filter_state(state, nnx.All(nnx.Param, nnx.Not(nnx.LoRAParam)))

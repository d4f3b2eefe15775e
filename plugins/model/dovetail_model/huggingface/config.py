"""Reads a `config.json`: checked values, old and new spellings, and the settings that most architectures share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import attrs

from dovetail.errors import ConfigError, listing
from dovetail_model.layers.glu import Activation
from dovetail_model.layers.rope import Rope, Stretch, Yarn
from dovetail_model.spec import Layer, Spec

FILE: Final = "config.json"
KNOWN: Final = Path(__file__).parent / "known"
"""Sizes of the models that shipped configs name, so that `dovetail plan` works before they are downloaded."""
MAXIMUM: Final = "max_position_embeddings"
ORIGINAL: Final = "original_max_position_embeddings"
FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
CLASSIFIERS: Final = ("ForSequenceClassification", "ForTokenClassification")
"""Suffixes of the class names of reward models and critics in `architectures`."""
ACTIVATIONS: Final[dict[str, Activation]] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}

T = TypeVar("T")
_MISSING: Any = object()


@attrs.frozen
class HuggingFaceConfig:
    """The values of a `config.json`, or of an object `within` it; errors name both. A null counts as absent."""

    file: Path
    values: Mapping[str, Any]
    within: str = ""

    @classmethod
    def read(cls, folder: Path) -> HuggingFaceConfig:
        """Read the file of a model's folder.

        Raises:
            ConfigError: if the folder or the file is missing, or the file is not a JSON object.
        """
        file = folder / FILE
        if not file.is_file():
            what = "has no config.json" if folder.is_dir() else "is not a folder"
            raise ConfigError(
                f"{folder}: {what}; a model is a folder with config.json and *.safetensors, a .gguf file, or"
                " OWNER/NAME on the Hugging Face hub"
            )
        return cls(file, read_object(file))

    @classmethod
    def known(cls, name: str) -> HuggingFaceConfig | None:
        """Return the known `config.json` of a published model, by the last part of its name; None if it is unknown."""
        file = KNOWN / f"{name}.json"
        return cls(file, json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None

    def has(self, name: str) -> bool:
        """Return whether the file has a value of this name."""
        return self.values.get(name) is not None

    def get(self, name: str, kind: type[T], default: T = _MISSING) -> T:
        """Return a value, or the default if there is none.

        Raises:
            ConfigError: if the value has another type, or is missing and has no default.
        """
        value = self.values.get(name)
        if value is None and default is not _MISSING:
            return default
        if value is None:
            raise self.refuse(f"'{name}' is missing")
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise self.refuse(f"{name} = {value!r}; it must be of type {kind.__name__}")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.refuse(f"{name} = {value!r}; it must be finite")
        return cast("T", value)

    def positive(self, name: str, default: float = _MISSING) -> float:
        """Return a number above 0, such as one that is divided by, of a size that float32 can compute with."""
        value = self.get(name, float, default)
        if value < 1e-30:  # float32 has nothing much smaller
            raise self.refuse(f"{name} = {value}; it must be above 0")
        if value > 1e30:
            raise self.refuse(f"{name} = {value}; it must be at most 1e30")
        return value

    def part(self, name: str, defaults: Mapping[str, Any]) -> HuggingFaceConfig:
        """Return an object in the file, such as `text_config`, with defaults for the keys that it leaves out."""
        return attrs.evolve(self, values={**defaults, **self.get(name, dict)}, within=f"{self.within}{name}: ")

    def optional(self, name: str, kind: type[T]) -> T | None:
        """Return a value, or None."""
        return self.get(name, kind) if self.has(name) else None

    def size(self, name: str, default: int = _MISSING, *, most: int = 2**31 - 1) -> int:
        """Return an integer of at least 1 and at most `most`, so that a wrong value cannot exhaust the memory."""
        value = self.get(name, int, default)
        if value < 1:
            raise self.refuse(f"{name} = {value}; it must be at least 1")
        if value > most:
            raise self.refuse(f"{name} = {value}; it must be at most {most:,}")
        return value

    def one_of(self, name: str, value: Any, allowed: Mapping[str, T]) -> T:
        """Return the meaning of a word in the file, from the table of allowed words."""
        if value not in allowed:
            raise self.refuse(f"{name} = {value!r}; supported are {listing(allowed)}")
        return allowed[value]

    def refuse(self, what: str) -> ConfigError:
        """Return the error that says what is wrong with the file."""
        return ConfigError(f"{self.file}: {self.within}{what}")


def common(config: HuggingFaceConfig, *, tied: bool = False) -> Spec:
    """Read the settings of all architectures; every layer gets full attention and the rotary positions of `rope`.

    Raises:
        ConfigError: for values that are missing, of the wrong type, unsupported or inconsistent.
    """
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", heads)
    head_dim = config.size("head_dim", width // heads)
    if heads % kv_heads:
        raise config.refuse(f"num_attention_heads = {heads} is not a multiple of num_key_value_heads = {kv_heads}")
    if not config.has("head_dim") and width % heads:
        raise config.refuse(f"hidden_size = {width} is not a multiple of num_attention_heads = {heads}; give head_dim")
    if head_dim % 2:
        raise config.refuse(f"{head_dim} units per head; rotary positions rotate pairs, so it must be even")
    return Spec(
        vocab_size=config.size("vocab_size"),
        width=width,
        ffn=config.size("intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        layers=(Layer(rope(config)),) * config.size("num_hidden_layers", most=10_000),
        tied=config.get("tie_word_embeddings", bool, tied),
        has_logits=not any(str(name).endswith(CLASSIFIERS) for name in config.get("architectures", list, [])),
        activation=activation(config),
        norm_epsilon=config.get("rms_norm_eps", float, 1e-6),
        init_std=config.get("initializer_range", float, 0.02),
    )


def activation(config: HuggingFaceConfig) -> Activation:
    """Read the activation of the gate: `hidden_activation` or `hidden_act`."""
    name = "hidden_activation" if config.has("hidden_activation") else "hidden_act"
    return config.one_of(name, config.get(name, str), ACTIVATIONS)


def layers(
    config: HuggingFaceConfig,
    *,
    is_sliding: Callable[[int], bool],
    window: int | None,
    full: Rope | None = None,
    sliding: Rope | None = None,
) -> tuple[Layer, ...]:
    """Read which layers have a window, from the list `layer_types` or, in older files, by the layer's index.

    Args:
        config: the file.
        is_sliding: the rule for older files, a function of the layer's index.
        window: number of tokens that a layer with a window sees; None means that no layer has a window.
        full: rotary positions of layers with full attention; None means `rope(config)`.
        sliding: rotary positions of layers with a window; None means `full`.

    Raises:
        ConfigError: if the length of the list is not the number of layers, or it has unknown entries.
    """
    full = rope(config) if full is None else full
    near = None if window is None else Layer(full if sliding is None else sliding, window)
    kinds = {FULL: Layer(full), **({} if near is None else {SLIDING: near})}
    number = config.size("num_hidden_layers", most=10_000)
    if not config.has("layer_types"):
        return tuple(near if near is not None and is_sliding(i) else Layer(full) for i in range(number))
    listed = config.get("layer_types", list)
    if len(listed) != number:
        raise config.refuse(f"layer_types has {len(listed)} entries for num_hidden_layers = {number}")
    return tuple(config.one_of("layer_types", kind, kinds) for kind in listed)


def rope(config: HuggingFaceConfig, kind: str = FULL, *, default_theta: float = 10_000.0) -> Rope:
    """Read the rotary positions of one kind of layer: `rope_parameters`, or the older `rope_theta`, `rope_scaling`."""
    outside = {name: config.values.get(name) for name in (MAXIMUM, ORIGINAL)}
    given = {MAXIMUM: outside[MAXIMUM], "rope_theta": config.get("rope_theta", float, default_theta)}
    if config.has("rope_parameters"):
        parameters = config.get("rope_parameters", dict)
        given |= attrs.evolve(config, values=parameters).get(kind, dict, parameters)
    else:
        given |= config.get("rope_scaling", dict, {})
    given[ORIGINAL] = outside[ORIGINAL] or given.get(ORIGINAL) or outside[MAXIMUM]
    return _rope(config, given)


def _rope(config: HuggingFaceConfig, parameters: Mapping[str, Any]) -> Rope:
    given = attrs.evolve(config, values=parameters)
    kind = given.get("rope_type", str, given.get("type", str, "default"))
    reader = config.one_of("rope_type", kind, _ROPES)
    if given.get("partial_rotary_factor", float, 1.0) != 1 or config.get("partial_rotary_factor", float, 1.0) != 1:
        raise config.refuse("partial_rotary_factor is not 1; only whole heads can be rotated")
    return reader(given, given.positive("rope_theta"))


def _llama3(given: HuggingFaceConfig, theta: float) -> Rope:
    stretch = Stretch(
        factor=given.positive("factor"),
        low=given.positive("low_freq_factor"),
        high=given.positive("high_freq_factor"),
        original=given.size(ORIGINAL),
    )
    return Rope(theta=theta, stretch=stretch)


def _yarn(given: HuggingFaceConfig, theta: float) -> Rope:
    original = given.size(ORIGINAL)
    factor = given.get("factor", float) if given.has("factor") else given.size(MAXIMUM) / original
    if factor < 1:
        raise given.refuse(f"factor = {factor}; YaRN stretches, so it must be at least 1")
    stretch = Yarn(
        factor=factor,
        original=original,
        fast=given.positive("beta_fast", 32.0),
        slow=given.positive("beta_slow", 1.0),
        whole=given.get("truncate", bool, True),
    )
    return Rope(theta=theta, stretch=stretch, magnitude=given.get("attention_factor", float, _magnitude(given, factor)))


def _magnitude(given: HuggingFaceConfig, factor: float) -> float:
    """Return YaRN's 1 + 0.1 m ln(factor), or the quotient of two such values if the file gives two m."""
    above, below = (given.get(name, float, 0.0) for name in ("mscale", "mscale_all_dim"))
    if not above or not below:
        above, below = 1.0, 0.0
    return (1 + 0.1 * above * math.log(factor)) / (1 + 0.1 * below * math.log(factor))


_ROPES: dict[str, Callable[[HuggingFaceConfig, float], Rope]] = {
    "default": lambda _, theta: Rope(theta=theta),
    "linear": lambda given, theta: Rope(theta=theta, factor=given.positive("factor")),
    # up to the original length the frequencies are not scaled
    "dynamic": lambda given, theta: Rope(theta=theta, limit=given.size(ORIGINAL)),
    "llama3": _llama3,
    "yarn": _yarn,
}


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        ConfigError: if there is something else in it.
    """
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{file}: holds a {type(values).__name__}, not an object")
    return values

"""Finds the architecture that a `config.json` names."""

from __future__ import annotations

from collections.abc import Sequence

import dovetail
from dovetail.errors import ConfigError, UnknownNameError, listing, nearest
from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.huggingface.tower import PARTS, TEXT
from dovetail_model.spec import Spec


def read_spec(config: HuggingFaceConfig) -> Spec:
    """Return the decoder that a `config.json` describes, read by the architecture that its `model_type` names.

    Raises:
        ConfigError: if no such architecture is registered, or the weights are quantised.
    """
    name = config.get("model_type", str)
    try:
        architecture = dovetail.get("architecture", name)
    except UnknownNameError as error:
        known = dovetail.names("architecture")
        if any(config.has(part) for part in PARTS):
            raise _tower_refused(config, name, known) from error
        raise config.refuse(
            f"model_type = {name!r} is not supported.{nearest(name, known)} Supported: {listing(known)}; a plugin adds"
            f' one with register("architecture", {name!r}, "package.module:function")'
        ) from error
    if config.has("quantization_config"):
        raise config.refuse("the weights are quantised (quantization_config); use the folder of the unquantised model")
    return architecture(config)


def _tower_refused(config: HuggingFaceConfig, name: str, known: Sequence[str]) -> ConfigError:
    """Return the error for a model of several parts. No similar name is proposed, as that would be another model."""
    text = config.part(TEXT, {}).get("model_type", str, name) if config.has(TEXT) else name
    kind = "" if text == name else f" ({text!r})"
    alone = f" inside it; a folder of this tower alone, with model_type = {text!r}, is" if text in known else ""
    return config.refuse(
        f"the text tower of model_type = {name!r}{kind} is not supported{alone}. Supported: {listing(known)}; a plugin"
        f' adds one with register("architecture", {name!r}, "package.module:function")'
    )

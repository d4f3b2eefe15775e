"""Finds the architecture that a `config.json` names."""

from __future__ import annotations

import dovetail
from dovetail.errors import UnknownNameError, listing, nearest
from dovetail_model.huggingface.config import HuggingFaceConfig
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
        raise config.refuse(
            f"model_type = {name!r} is not supported.{nearest(name, known)} Supported: {listing(known)}; a plugin adds"
            f' one with register("architecture", {name!r}, "package.module:function")'
        ) from error
    if config.has("quantization_config"):
        raise config.refuse("the weights are quantised (quantization_config); use the folder of the unquantised model")
    return architecture(config)

"""The spellings of a `config.json` that programs before transformers 5 read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail_model.huggingface.config import FULL, ORIGINAL, SLIDING

_LONG = {"rope_type", "type", "short_factor", "long_factor", ORIGINAL}


def with_old_spellings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add the keys that older programs read to a `config.json` of transformers 5, so that both read the same model.

    transformers 5 keeps rotary positions in `rope_parameters`, separately for each kind of layer if they differ. A
    program that does not know this key silently uses the default base of the frequencies, and so computes another
    model. Existing keys are not changed, and both spellings have the same meaning.

    >>> with_old_spellings({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})["rope_theta"]
    1000000.0
    >>> with_old_spellings({"dtype": "float32"})
    {'torch_dtype': 'float32', 'dtype': 'float32'}
    """
    old: dict[str, Any] = {}
    if values.get("dtype") is not None:
        old["torch_dtype"] = values["dtype"]
    if values.get("_sliding_window_pattern") is not None:
        old["sliding_window_pattern"] = values["_sliding_window_pattern"]
    if values.get("num_local_experts") is not None and "qwen" in str(values.get("model_type")):
        old["num_experts"] = values["num_local_experts"]
    if values.get("rope_parameters"):
        old |= _rope(values["rope_parameters"])
    return old | {name: value for name, value in values.items() if value is not None or name not in old}


def _rope(parameters: Mapping[str, Any]) -> dict[str, Any]:
    full = dict(parameters.get(FULL, parameters))
    near = parameters.get(SLIDING, {})
    found = {"rope_theta": full.pop("rope_theta", None), "rope_local_base_freq": near.get("rope_theta")}
    found["partial_rotary_factor"] = full.pop("partial_rotary_factor", None)
    if full.get("rope_type", "default") != "default":
        found["rope_scaling"] = full
    if full.get("rope_type") == "longrope" and not full.keys() - _LONG:
        # before transformers 5, Phi-3's reader accepts only these three keys
        found[ORIGINAL] = full.get(ORIGINAL)
        found["rope_scaling"] = {"type": "longrope", **{name: full[name] for name in ("short_factor", "long_factor")}}
    return {name: value for name, value in found.items() if value is not None}

"""The spellings of a `config.json` that programs before transformers 5 read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail_model.huggingface.config import FULL, ORIGINAL, SLIDING

_LONG = {"rope_type", "type", "short_factor", "long_factor", ORIGINAL}


def with_old_spellings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add to what transformers 5 writes what older programs look for, so that both read the same model.

    transformers 5 keeps rotary positions in `rope_parameters`, for each kind of layer where they differ. Whoever does
    not know that name takes the default base of the frequencies, and computes another model without a word. Nothing
    that is there is changed, and programs that know both spellings find the same in both.

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
        # Phi-3's reader before transformers 5 accepts these three and no others
        found[ORIGINAL] = full.get(ORIGINAL)
        found["rope_scaling"] = {"type": "longrope", **{name: full[name] for name in ("short_factor", "long_factor")}}
    return {name: value for name, value in found.items() if value is not None}

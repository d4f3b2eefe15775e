"""The choice of the attention implementation, by platform, model and shapes."""

from __future__ import annotations

import math
from typing import Final

import attrs
import jax

from dovetail.devices.population import CURRENT
from dovetail.errors import ConfigError
from dovetail_model.attention.cudnn import IN_ORDER, has_mask
from dovetail_model.attention.flash_decoding import UNITS, has_kernel
from dovetail_model.attention.splash import LANES
from dovetail_model.spec import Spec

LONG_ROW: Final = 512
"""The number of a row's own keys from which blocks are faster, because causal attention skips half of them."""
LONG: Final = 1024
"""The number of keys, including a prefix's, from which blocks are at least as fast and need much less memory.

Both limits were measured on CPUs (`docs/performance.md`), not on an accelerator."""
CUDNN_UNITS: Final = 128
"""The greatest number of units per head that cuDNN's kernel accepts on every device that has it."""
HOPPER, HOPPER_UNITS = 9.0, 256
"""The compute capability from which it accepts more, and how many."""
WASTE: Final = 3
"""The greatest number of positions per token for kernels that compute the queries of all positions."""
SEVERAL: Final = "its kernel reads one text in a row, and these rows pack several (train.packing)"


@attrs.frozen(kw_only=True)
class Shapes:
    """The numbers of tokens and keys in a call of attention.

    Attributes:
        tokens: queries of a row.
        own: keys of a row.
        prefix: keys shared with other rows.
        packed: whether rows pack several texts.
        decoding: whether earlier keys are in a cache, so that there is no backward pass.
        parts: devices over which the tokens of a row are cut.
    """

    tokens: int
    own: int
    prefix: int = 0
    packed: bool = False
    decoding: bool = False
    parts: int = 1

    @property
    def keys(self) -> int:
        """Keys that a token may see."""
        return self.own + self.prefix


def choose(spec: Spec, shapes: Shapes, platform: str | None = None) -> str:
    """Return the name of the implementation.

    A single token, as in decoding, has only as many scores as keys, so that storing them costs little memory; on
    NVIDIA's devices a kernel for it saves time.

    Raises:
        ConfigError: if the spec names an implementation that does not apply; the message says why.
    """
    platform = platform or _platform()
    if shapes.tokens == 1:
        return "flash_decoding" if shapes.decoding and _has_decoding(spec, platform) else "dense"
    if spec.attention != "auto":
        if reason := obstacle(spec.attention, spec, shapes, platform):
            raise ConfigError(f"attention = '{spec.attention}' does not apply: {reason}; 'auto' chooses one that does")
        return _as_computed(spec.attention)
    for fused in ("cudnn", "splash"):
        if not obstacle(fused, spec, shapes, platform):
            return _as_computed(fused)
    return "blockwise" if shapes.own >= LONG_ROW or shapes.keys >= LONG else "dense"


def _as_computed(name: str) -> str:
    """Return the variant of an implementation that a population computes, whose runs are one under `jax.vmap`."""
    return IN_ORDER if name == "cudnn" and CURRENT.get() is not None else name


def obstacle(name: str, spec: Spec, shapes: Shapes, platform: str) -> str | None:
    """Return why an implementation cannot be used, or None."""
    if name == "cudnn":
        return _cudnn_obstacle(spec, shapes, platform)
    if name == "splash":
        return _splash_obstacle(shapes, platform)
    return None


def _cudnn_obstacle(spec: Spec, shapes: Shapes, platform: str) -> str | None:
    if platform != "cuda":
        return f"cuDNN is NVIDIA's, and this is {platform}"
    if shapes.parts > 1:
        return f"its kernel reads whole rows, and their tokens are cut over {shapes.parts} devices (mesh.cp)"
    if spec.dtype != "bfloat16":
        return f"its kernel computes in 16 bits, and dtype = '{spec.dtype}'"
    if spec.attention_cap is not None:
        return "its kernel has no soft cap, and this model caps its scores"
    if spec.head_dim > (most := _cudnn_units()) or spec.head_dim % 8:
        return f"its heads have a multiple of 8 units, {most} at most, and this model's have {spec.head_dim}"
    is_masked = CURRENT.get() is None and has_mask(shapes.tokens, shapes.keys)
    return None if is_masked else _order_obstacle(shapes)


def _cudnn_units() -> int:
    capability = float(getattr(jax.devices()[0], "compute_capability", 0))
    return HOPPER_UNITS if capability >= HOPPER else CUDNN_UNITS


def _order_obstacle(shapes: Shapes) -> str | None:
    if shapes.packed:
        return SEVERAL
    if shapes.keys > WASTE * shapes.tokens:
        return f"it computes a query for each of {shapes.keys} keys, and there are {shapes.tokens} tokens"
    return None


def _has_decoding(spec: Spec, platform: str) -> bool:
    """Return whether the kernel for single tokens replaces the dense attention, which is used if the spec names it.

    It was measured in bfloat16 only.
    """
    applies = platform == "cuda" and spec.dtype == "bfloat16" and spec.head_dim in UNITS and not _is_cut()
    return applies and spec.attention != "dense" and has_kernel()


def _is_cut() -> bool:
    """Return whether rows are cut over the devices of a mesh, for which kernels are not written."""
    return math.prod(jax.sharding.get_abstract_mesh().axis_sizes) > 1


def _splash_obstacle(shapes: Shapes, platform: str) -> str | None:
    if shapes.packed:
        return SEVERAL
    if platform != "tpu":
        return f"its kernel is written for TPUs, and this is {platform}"
    if _is_cut():
        return "its kernel is not cut over the devices of a mesh"
    if shapes.tokens < LANES:
        return f"it reads {LANES} tokens together, and there are {shapes.tokens}"
    return None


def _platform() -> str:
    """Return JAX's name of its default platform: 'cpu', 'cuda', 'tpu', ..."""
    backend = jax.default_backend()
    is_cuda = backend == "gpu" and "cuda" in jax.devices()[0].client.platform_version
    return "cuda" if is_cuda else backend

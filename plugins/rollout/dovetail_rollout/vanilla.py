"""The built-in engine: a jitted sampler in the trainer's own process."""

from __future__ import annotations

import functools
from typing import Any

import attrs
import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from dovetail.errors import RunError
from dovetail.protocols import Completions, Sampling, Tokenizer
from dovetail_rollout.checks import check_prompts
from dovetail_rollout.decode import Decoded, Limits, decode


@attrs.frozen(kw_only=True)
class Vanilla:
    """Samples with the trainer's own model, parameters and devices: prefill, then a compiled loop with a cache.

    Nothing to set. Each shape (prompts, prompt length, samples, `max_tokens`) and `top_k` compile once per process;
    temperature and `top_p` may change freely. Parameters are shared with the trainer, never copied: after an update
    that donates them, `sync` before the next `generate`.
    """

    def open(self, graphdef: Any, params: Any, tokenizer: Tokenizer) -> VanillaEngine:
        """Return an engine that samples from `nnx.merge(graphdef, params)`; its weights have version 0."""
        return VanillaEngine(
            graphdef=graphdef, params=params, eos_ids=tuple(tokenizer.eos_ids), pad_id=tokenizer.pad_id
        )


@attrs.define(kw_only=True, eq=False)
class VanillaEngine:
    """An open `Vanilla`; see `dovetail.protocols.RolloutEngine`."""

    graphdef: Any
    params: Any = attrs.field(repr=False)
    eos_ids: tuple[int, ...]
    pad_id: int
    version: int = 0
    closed: bool = False

    def generate(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
    ) -> Completions:
        """Sample one completion for each key.

        Raises:
            ConfigError: for shapes that do not match, or prompts padded on the right.
            RunError: after `close`.
        """
        self._check_open()
        check_prompts(prompt_tokens, prompt_mask, keys)
        limits = Limits(max_tokens=sampling.max_tokens, top_k=sampling.top_k, eos_ids=self.eos_ids, pad_id=self.pad_id)
        decoded = _generate(
            self.graphdef,
            self.params,
            np.asarray(prompt_tokens, np.int32),
            np.asarray(prompt_mask, bool),
            keys,
            np.float32(sampling.temperature),
            None if sampling.top_p is None else np.float32(sampling.top_p),
            limits,
        )
        host = jax.device_get(decoded)
        return Completions(
            tokens=host.tokens,
            mask=host.mask,
            logps=host.logps,
            truncated=~host.finished,
            versions=np.full(len(host.tokens), self.version, np.int32),
        )

    def sync(self, params: Any, version: int) -> None:
        """Use these weights from now on."""
        self._check_open()
        self.params, self.version = params, version

    def close(self) -> None:
        """Let go of the weights; a second call does nothing."""
        self.params, self.closed = None, True

    def _check_open(self) -> None:
        if self.closed:
            raise RunError("this rollout engine is closed; open another one with `Vanilla().open(...)`")


@functools.partial(jax.jit, static_argnames=("graphdef", "limits"))
def _generate(
    graphdef: Any,
    params: Any,
    prompt_tokens: Int[Array, "prompt position"],
    prompt_mask: Bool[Array, "prompt position"],
    keys: Key[Array, "prompt sample"],
    temperature: Float[Array, ""],
    top_p: Float[Array, ""] | None,
    limits: Limits,
) -> Decoded:
    model: Any = nnx.merge(graphdef, params)
    return decode(model, prompt_tokens, prompt_mask, keys, temperature, top_p, limits)

"""Asks a host a few prompts, and refuses it if its log-probabilities are not those of the trainer's model."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from dovetail.config.settings import Sampling
from dovetail.devices.mesh import Devices
from dovetail.errors import RunError
from dovetail.protocols import Weights
from dovetail_rollout.hosted.engine import HostedEngine
from dovetail_rollout.hosted.handover import config_of, dtype_of

PROMPTS: Final = 4
LENGTH: Final = 48
"""Tokens of a prompt: rotary positions of a wrong base are far apart by then."""
MAX_TOKENS: Final = 8
ORIGINAL: Final = "original_max_position_embeddings"
EXACT: Final = 0.01
HALF: Final = 0.25
"""Nats by which log-probabilities may differ on average in float32, and where anything has 16 bits."""


@attrs.frozen(kw_only=True)
class Probe:
    """Compares a host with the model that it should be serving.

    A host that reads a folder in another way (another base of the rotary positions, another norm, an adapter left out)
    samples from another policy without a word, and the run would only be slow to learn. What matters only over more
    tokens than these, a window of attention or the scaling of positions beyond the original length, is not compared:
    where a model has it, that is said.

    Attributes:
        graphdef: the structure of the model.
        weights: what the host was given.
        tolerance: of the mean |log π - log μ|, in nats; None is 0.01 in float32 and 0.25 if the model computes, or its
            weights are stored, in 16 bits; 0 asks nothing.
    """

    graphdef: Any
    weights: Weights
    tolerance: float | None

    def check(self, engine: HostedEngine) -> None:
        """Ask and compare.

        Raises:
            RunError: if the host's log-probabilities are further away than allowed.
        """
        if self.tolerance == 0:
            return
        prompts = self._prompts(engine)
        keys = jax.random.split(jax.random.key(0), (PROMPTS, 1))
        drawn = engine.generate(prompts, np.ones_like(prompts, bool), keys, Sampling(max_tokens=MAX_TOKENS))
        ours, computed_in = self._scored(prompts, drawn.tokens)
        allowed = self.tolerance or (EXACT if {computed_in, dtype_of(engine.folder)} == {"float32"} else HALF)
        apart = np.abs(ours - drawn.logps)[drawn.mask]
        # a comparison with NaN is false, so that a host that reports none is refused too
        if not float(np.mean(apart)) <= allowed:
            raise RunError(_refusal(engine, apart, allowed))
        for what, length in beyond(config_of(engine.folder), LENGTH + MAX_TOKENS).items():
            print(
                f"rollout engine '{engine.name}': log-probabilities were compared over {LENGTH + MAX_TOKENS} tokens,"
                f" which do not reach this model's {what} = {length}; mismatch/abs_mean shows how it reads longer ones",
                file=sys.stderr,
            )

    def _prompts(self, engine: HostedEngine) -> Int[np.ndarray, "prompt position"]:
        """Return ids drawn at random: every model has them, whatever its tokenizer."""
        special = (engine.pad_id, *engine.eos_ids)
        ids = np.setdiff1d(np.arange(engine.vocab_size, dtype=np.int32), special)
        return np.random.default_rng(0).choice(ids, (PROMPTS, LENGTH))

    def _scored(
        self, prompts: Int[np.ndarray, "prompt position"], tokens: Int[np.ndarray, "prompt token"]
    ) -> tuple[Float[np.ndarray, "prompt token"], str]:
        """Return our own log-probabilities of the tokens, and the type that the model computes in."""
        together = np.concatenate([prompts, tokens], axis=1)
        mesh = jax.sharding.get_mesh()
        # weights in host memory are cut over the devices as the trainer's are, of which one may not hold all
        weights = self.weights if mesh.empty else Weights(*map(Devices(mesh).spread, self.weights))
        hidden, logps = _score(self.graphdef, weights, together, np.ones_like(together, bool))
        return np.asarray(logps), str(hidden.dtype)


@functools.partial(jax.jit, static_argnums=0)
def _score(
    graphdef: Any, weights: Weights, tokens: Int[Array, "prompt position"], mask: Bool[Array, "prompt position"]
) -> tuple[Array, Float[Array, "prompt token"]]:
    model: Any = nnx.merge(graphdef, *weights)
    hidden = model(tokens, mask)[0][:, LENGTH - 1 : -1]
    logps = jax.nn.log_softmax(model.logits(hidden).astype(jnp.float32), axis=-1)
    return hidden, jnp.take_along_axis(logps, tokens[:, LENGTH:, None], axis=-1)[..., 0]


def beyond(config: Mapping[str, Any], tokens: int) -> dict[str, int]:
    """Return the lengths in a `config.json`, by their names, from which on a model does what it did not do before.

    >>> beyond({"sliding_window": 4096, "rope_scaling": {"original_max_position_embeddings": 8192}}, tokens=56)
    {'sliding_window': 4096, 'original_max_position_embeddings': 8192}
    >>> beyond({"sliding_window": 4096, "use_sliding_window": False}, tokens=56)
    {}
    """
    config = config.get("text_config") or config
    ropes = [config, config.get("rope_scaling") or {}, config.get("rope_parameters") or {}]
    ropes += [rope for rope in ropes[-1].values() if isinstance(rope, Mapping)]  # one for each type of layer
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    found = {"sliding_window": [window], ORIGINAL: [rope.get(ORIGINAL) for rope in ropes]}
    least = {name: min(filter(None, lengths), default=0) for name, lengths in found.items()}
    return {name: int(length) for name, length in least.items() if length > tokens}


def _refusal(engine: HostedEngine, apart: Float[np.ndarray, "token"], allowed: float) -> str:
    return (
        f"rollout engine '{engine.name}' does not sample from this model: on {len(apart)} tokens its log-probabilities"
        f" are {np.mean(apart):.3g} nats from the trainer's on average and {np.max(apart):.3g} at most, where {allowed}"
        f" is allowed. It reads the folder of the weights in another way, or computes in a coarser type: try another"
        f" version of it, or set rollout.{engine.name}.probe to what you accept (0 asks nothing)"
    )

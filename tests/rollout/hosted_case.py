"""A tiny random Qwen2, and what draws from its folder as a server would."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import dovetail
from dovetail.config.settings import Sampling
from dovetail_kit.rollout import EngineCase, Numbers, expected_logps
from dovetail_model.model.pretrained import Pretrained

LENGTH = 64


def qwen2(width: int, head_dim: int, std: float = 0.2) -> dict[str, Any]:
    """Return the config.json of a Qwen2 over the numbers 0 to 12; `std` is of the random weights."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "rope_theta": 1e4,
        "use_sliding_window": False,
        "vocab_size": Numbers().vocab_size,
        "hidden_size": width,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": width // head_dim,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "initializer_range": std,
    }


def models(folder: Path, config: Mapping[str, Any]) -> list[nnx.Module]:
    """Write the config to a folder; return two random models of it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    maker = Pretrained(path=str(folder), random=True)
    return [maker.make(Numbers().vocab_size, rngs=nnx.Rngs(seed)) for seed in (0, 1)]


def case(name: str, folder: Path, config: Mapping[str, Any], **params: Any) -> EngineCase:
    """Return the case of an engine that serves these models."""
    rollout: Any = dovetail.get("rollout", name).bind(folder=str(folder), **params)
    return EngineCase.of(rollout, *models(folder, config), Numbers())


class Drawer:
    """Draws from the model of a folder with numpy's random numbers, a token at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.digest = ""
        self.models: dict[str, Any] = {}
        self.logits = functools.cache(self._logits)

    def load(self, folder: Path) -> None:
        self.digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        if self.digest not in self.models:
            vocab_size = json.loads((folder / "config.json").read_text())["vocab_size"]
            model = Pretrained(path=str(folder)).make(vocab_size, rngs=nnx.Rngs(0))
            self.models[self.digest] = nnx.split(model)

    def draw(self, prompt: list[int], asked: Mapping[str, Any]) -> tuple[list[int], list[float]]:
        sampling = Sampling(
            temperature=asked["temperature"],
            top_k=asked["top_k"] or None,
            top_p=asked["top_p"] if asked["top_p"] < 1 else None,
            min_p=asked["min_p"] or None,
        )
        random, tokens, logps = np.random.default_rng(asked["seed"]), [], []
        while len(tokens) < asked["max_tokens"] and not set(tokens) & set(asked["stop_token_ids"]):
            with self.lock:
                logits = self.logits(self.digest, (*prompt, *tokens))
            every = expected_logps(np.tile(logits, (len(logits), 1)), np.arange(len(logits)), sampling)
            p = np.exp(every)
            token = int(logits.argmax() if sampling.temperature == 0 else random.choice(len(p), p=p / p.sum()))
            tokens.append(token)
            logps.append(float(every[token]))
        return tokens, logps

    def _logits(self, digest: str, tokens: tuple[int, ...]) -> np.ndarray:
        graphdef, state = self.models[digest]
        padded = np.zeros((1, LENGTH), np.int32)
        padded[0, : len(tokens)] = tokens
        mask = np.arange(LENGTH)[None] < len(tokens)
        return np.asarray(_forward(graphdef, state, jnp.asarray(padded), jnp.asarray(mask)))[0, len(tokens) - 1]


@functools.partial(jax.jit, static_argnums=0)
def _forward(graphdef: Any, state: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    model: Any = nnx.merge(graphdef, state)
    return model.logits(model(tokens, mask)[0])

"""The workloads of the benchmarks and their components: prompts of one length, rewards that cost nothing.

W1  16 prompts of 64 tokens, 8 completions each, 64 new tokens; no end of sequence.
W2  the same, with lengths uniform in 4 … 64: a stop rule sets the probability of the end at each position.
W3  4 prompts of 448 tokens, 16 completions each, 64 new tokens; no end of sequence.
W4  W1 with lognormal lengths as of solutions to GSM8K: median 64, sigma 0.9, at most 512; ended like W2.

All of them: vocabulary 4096, a decoder of width 256 with 4 layers, 4 heads, 2 key-value heads of 64 units, feed-forward
1024, untied, float32 (6.03 million parameters); GRPO with KL 0.04 against a reference; one AdamW update a step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import attrs
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int
from scipy.stats import lognorm

import dovetail
from dovetail.protocols import Example, Split
from dovetail_model.attention.view import positions
from dovetail_model.model.decoder import Decoder

VOCAB, LONGEST, SHORTEST, EOS = 4096, 64, 4, 0
MEDIAN, SIGMA, CAP = 64, 0.9, 512

COMMON = (
    "train.task=fixed_prompts",
    "train.tokenizer=numbers",
    "train.rewards=['even_tokens']",
    "train.kl_coef=0.04",
    "train.lr=1e-6",
    "train.lr_schedule=constant",
    "model.decoder.width=256",
    "model.decoder.layers=4",
    "model.decoder.heads=4",
    "model.decoder.kv_heads=2",
    "model.decoder.head_dim=64",
    "model.decoder.ffn=1024",
    "model.decoder.tied=False",
    f"sampling.max_tokens={LONGEST}",
    "eval.every=1000000",
    "eval.examples=1",
    "run.checkpoint_every=1000000",
    "run.sinks=()",
)
SMALL = ("train.prompts=16", "train.group_size=8", "train.max_prompt_tokens=64")
LONG = ("train.prompts=4", "train.group_size=16", "train.max_prompt_tokens=448", "task.fixed_prompts.length=448")
SHAPES: dict[str, tuple[str, ...]] = {
    name: (
        f"tokenizer.numbers.size={vocabulary}",
        f"model.decoder.width={width}",
        f"model.decoder.layers={layers}",
        f"model.decoder.heads={heads}",
        f"model.decoder.kv_heads={kv_heads}",
        f"model.decoder.head_dim={head_dim}",
        f"model.decoder.ffn={ffn}",
        f"model.decoder.tied={tied}",
    )
    for name, vocabulary, width, layers, heads, kv_heads, head_dim, ffn, tied in (
        ("tiny", 4096, 64, 2, 4, 2, 16, 128, True),
        ("SmolLM2-135M", 49_152, 576, 30, 9, 3, 64, 1536, True),
        ("Qwen2.5-0.5B", 151_936, 896, 24, 14, 2, 64, 4864, True),
        ("Qwen2.5-1.5B", 151_936, 1536, 28, 12, 2, 128, 8960, True),
        ("Qwen2.5-7B", 152_064, 3584, 28, 28, 4, 128, 18_944, False),
    )
}
"""Decoders with random weights and the sizes of these models; the biases that Qwen adds in attention are left out."""
WORKLOADS: dict[str, tuple[str, ...]] = {
    "W1": (*COMMON, *SMALL),
    "W2": (*COMMON, *SMALL, "train.model=stopping_decoder", "tokenizer.numbers.ends=True"),
    "W3": (*COMMON, *LONG),
    "W4": (
        *COMMON,
        *SMALL,
        "train.model=stopping_decoder",
        "model.stopping_decoder.lengths=lognormal",
        "tokenizer.numbers.ends=True",
        f"sampling.max_tokens={CAP}",
    ),
}


@attrs.frozen(kw_only=True)
class FixedPrompts:
    """Random prompts of `length` tokens."""

    length: int = 64

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def examples(self, split: Split) -> Sequence[Example]:
        rng = np.random.default_rng(len(split))
        return [{"prompt": " ".join(map(str, row))} for row in rng.integers(1, VOCAB, (256, self.length))]

    def corpus(self) -> Sequence[str]:
        return ()


@attrs.frozen(kw_only=True)
class Numbers:
    """A tokenizer of `size` tokens, of which token 17 is the text '17'; `ends`: whether token 0 ends a completion."""

    ends: bool = False
    size: int = VOCAB

    @property
    def vocab_size(self) -> int:
        return self.size

    @property
    def pad_id(self) -> int:
        return EOS

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return (EOS,) if self.ends else ()

    def encode(self, text: str) -> list[int]:
        return [int(number) for number in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def render(self, prompt: Any) -> str:
        return prompt

    def save(self, folder: Path) -> None:
        (folder / "numbers.json").write_text(json.dumps(attrs.asdict(self)))

    def make(self, corpus: Sequence[str]) -> Numbers:
        return self

    def load(self, folder: Path) -> Numbers:
        return Numbers(**json.loads((folder / "numbers.json").read_text()))


def even_tokens(completions: list[str]) -> list[float]:
    """Return the share of even tokens, which differs between completions and costs nothing to compute."""
    return [float(np.mean([int(token) % 2 == 0 for token in text.split()])) for text in completions]


class Counted(NamedTuple):
    """A cache, and the number of unmasked tokens in each of its rows."""

    inner: Any
    seen: Int[Array, "seq"]


class Stopping(nnx.Module):
    """A decoder whose end-of-sequence logit follows the position, so that lengths have a given distribution.

    The hidden state has one more component, the log-odds of the end: completion token t is the end with probability
    `ends[t]`.
    """

    def __init__(self, trunk: Any, prompt: int, ends: Sequence[float]) -> None:
        self.trunk = trunk
        self.width = trunk.width + 1
        self.vocab_size = trunk.vocab_size
        self.prompt = prompt
        self.ends = tuple(ends)

    @property
    def packs(self) -> bool:
        return self.trunk.packs

    def __call__(
        self,
        tokens: Int[Array, "seq token"],
        mask: Bool[Array, "seq token"],
        cache: Any = None,
        *,
        prefix: Any = None,
        texts: Int[Array, "seq token"] | None = None,
    ) -> tuple[Float[Array, "seq token width"], Any]:
        inner = {} if prefix is None else {"prefix": prefix.inner}
        hidden, after = self.trunk(tokens, mask, None if cache is None else cache.inner, texts=texts, **inner)
        whole = jnp.cumsum(mask, axis=1, dtype=jnp.int32)
        count = whole if texts is None else positions(mask, None, texts=texts).tokens + 1
        if cache is not None:
            count += cache.seen[:, None]
        read = 0 if prefix is None else jnp.repeat(prefix.seen, len(tokens) // len(prefix.seen))[:, None]
        number = read + count - self.prompt + 1  # of the completion token that this position predicts
        chance = jnp.asarray(self.ends, jnp.float32)[jnp.clip(number, 0, len(self.ends) - 1)]
        odds = (jnp.log(chance) - jnp.log1p(-chance)).astype(hidden.dtype)
        return jnp.concatenate([hidden, odds[..., None]], axis=-1), Counted(after, count[:, -1])

    def logits(self, hidden: Float[Array, "*batch width"]) -> Float[Array, "*batch vocab"]:
        logits = self.trunk.logits(hidden[..., :-1])
        is_eos = jnp.arange(self.vocab_size) == EOS
        # Initial weights give nearly uniform logits, so the other tokens' log-sum-exp is approximately that of zeros.
        return jnp.where(
            is_eos.reshape((1,) * (logits.ndim - 1) + (-1,)), np.float32(np.log(VOCAB)) + hidden[..., -1:], logits
        )

    def init_cache(self, batch: int, length: int) -> Counted:
        return Counted(self.trunk.init_cache(batch, length), jnp.zeros(batch, jnp.int32))


@attrs.frozen(kw_only=True)
class StoppingDecoder:
    """The decoder of W1 with the stop rule of W2 (`uniform`) or W4 (`lognormal`)."""

    prompt: int = 64
    lengths: Literal["uniform", "lognormal"] = "uniform"

    def make(self, vocab_size: int, *, rngs: nnx.Rngs, place: Any = None) -> nnx.Module:
        spec = Decoder(width=256, layers=4, heads=4, kv_heads=2, head_dim=64, ffn=1024, tied=False)
        trunk, chances = spec.make(vocab_size, rngs=rngs, place=place), {"uniform": uniform, "lognormal": lognormal}
        return Stopping(trunk, self.prompt, chances[self.lengths]())

    def abstract(self, vocab_size: int | None) -> nnx.Module:
        return nnx.eval_shape(lambda: self.make(vocab_size or VOCAB, rngs=nnx.Rngs(0)))

    def export(self, model: nnx.Module, folder: Path, *, adapter: bool, dtype: Any = None) -> list[Path]:
        raise dovetail.DovetailError("no other program knows the stop rule of this benchmark")


def uniform() -> list[float]:
    """Return the probability that token t of W2 is the end if none before it was: lengths are uniform in 4 … 64."""
    return [1e-9 if t < SHORTEST else min(1 / (LONGEST + 1 - t), 0.999) for t in range(LONGEST + 1)]


def lognormal() -> list[float]:
    """Return the same of W4: a length is the whole part of a lognormal number, and at least 1."""
    longer = lognorm(SIGMA, scale=MEDIAN).sf(np.arange(CAP + 2))
    longer[1] = 1.0  # what is below 1 counts as 1
    return [1e-9, *np.clip(1 - longer[2:] / longer[1:-1], 1e-9, 0.999).tolist()]


def register() -> None:
    """Register the components for this process."""
    dovetail.register("task", "fixed_prompts", FixedPrompts)
    dovetail.register("tokenizer", "numbers", Numbers)
    dovetail.register("model", "stopping_decoder", StoppingDecoder)
    dovetail.register("reward", "even_tokens", even_tokens)

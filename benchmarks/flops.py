"""Counts the useful operations and bytes of a decoder's passes.

Recomputed activations, masked scores, padding, norms, softmax and the optimiser are not counted. The share of a
device's rate that this leaves is what the literature calls MFU (Chowdhery et al. 2022, "PaLM", appendix B).
"""

from __future__ import annotations

import attrs

from dovetail.config import Config


@attrs.frozen(kw_only=True)
class Work:
    """A step of `prompts` prompts of `prompt` tokens, each with `group` completions of `answer` tokens.

        forward = 2 M t + 2 d V c + 4 L h k p          update = 3 · forward, 6 M t without head and attention
        M = L (2 d h k + 2 d g k + 3 d f)

    with width d, L layers, h query and g key-value heads of k units, feed-forward f, vocabulary V; t tokens, of which c
    have logits, and p pairs of a token with itself or an earlier one in its row. A multiplication and an addition count
    as two. A prompt is processed once for all of its completions, as Dovetail does.
    """

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    prompts: int
    group: int
    prompt: int
    answer: int
    itemsize: int

    @classmethod
    def of(cls, config: Config, vocabulary: int) -> Work:
        """Return the work of a step of a config whose model is a `decoder`."""
        model, train = config.choice("train.model").params, config.train
        names = ("width", "layers", "heads", "kv_heads", "head_dim", "ffn")
        return cls(
            **{name: model[name] for name in names},
            vocabulary=vocabulary,
            prompts=train.prompts,
            group=train.group_size,
            prompt=train.max_prompt_tokens,
            answer=config.sampling.max_tokens,
            itemsize=2 if model.get("dtype") == "bfloat16" else 4,
        )

    @property
    def rows(self) -> int:
        """The number of completions."""
        return self.prompts * self.group

    @property
    def weights(self) -> int:
        """The weights of products in the blocks, M."""
        attention = 2 * self.width * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.width * self.ffn)

    def operations(self, tokens: float, logits: float, pairs: float) -> float:
        """Return the operations of a forward pass over so many tokens, positions with logits, and pairs."""
        head = 2 * self.width * self.vocabulary * logits
        return 2 * self.weights * tokens + head + 4 * self.layers * self.heads * self.head_dim * pairs

    @property
    def prefill(self) -> float:
        """The operations of processing the prompts."""
        return self.operations(self.prompts * self.prompt, 0, self.prompts * _triangle(self.prompt))

    @property
    def forward(self) -> float:
        """The operations of a forward pass over the step, or of sampling it."""
        pairs = self.rows * (self.answer * self.prompt + _triangle(self.answer))
        return self.prefill + self.operations(self.rows * self.answer, self.rows * self.answer, pairs)

    @property
    def update(self) -> float:
        """The operations of an update: a forward pass, and two products for each of its products backwards."""
        return 3 * self.forward

    @property
    def read(self) -> float:
        """The bytes that decoding must read: at each token all weights, the prompts' keys and values, and those of the
        completions so far.
        """
        cached = 2 * self.layers * self.kv_heads * self.head_dim
        positions = self.answer * self.prompts * self.prompt + self.rows * _triangle(self.answer)
        return self.itemsize * (self.answer * (self.weights + self.width * self.vocabulary) + cached * positions)


def _triangle(length: int) -> int:
    return length * (length + 1) // 2

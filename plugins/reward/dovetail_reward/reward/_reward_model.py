"""A reward model in JAX: a decoder, its scalar head and its tokenizer, as `transformers` writes them."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from dovetail.devices.mesh import Devices
from dovetail.errors import ConfigError, DataError
from dovetail.protocols import ValueHead
from dovetail_model.huggingface.loading import load
from dovetail_model.huggingface.lookup import read_spec
from dovetail_model.huggingface.score import BIAS, WEIGHT, read_score
from dovetail_model.source.source import Source, open_source
from dovetail_model.spec import DType
from dovetail_model.tokenizer.huggingface import HuggingFace, HuggingFaceTokenizer

OTHER_HEAD: Final = "lm_head.weight"
SHORTEST: Final = 32
"""The smallest number of tokens that a text is padded to."""

Score = Callable[[Int[Array, "seq token"], Bool[Array, "seq token"]], Float[Array, "seq"]]


@attrs.frozen(kw_only=True)
class OpenModel:
    """A loaded model; `score` is compiled once for each shape."""

    tokenizer: HuggingFaceTokenizer
    score: Score

    def continued(self, prompt: str, completion: str) -> list[int]:
        """Return the ids of a prompt, its completion, and the token that ends a turn."""
        text = prompt + self.tokenizer.as_text(completion)
        return [*self.tokenizer.encode(text), self.tokenizer.eos_ids[0]]

    def answered(self, question: str | Sequence[Mapping[str, Any]], completion: str) -> list[int]:
        """Return the ids of a conversation that ends with the completion."""
        asked = [{"role": "user", "content": question}] if isinstance(question, str) else list(question)
        messages = self.tokenizer.as_text([*asked, {"role": "assistant", "content": completion}])
        assert self.tokenizer.template is not None
        return self.tokenizer.encode(self.tokenizer.template.render(messages, add_generation_prompt=False))

    def scores(self, rows: Sequence[list[int]], batch_size: int) -> list[float]:
        """Return the score of each row of ids."""
        by_length: dict[int, list[int]] = defaultdict(list)
        for i, row in enumerate(rows):
            by_length[max(SHORTEST, 1 << (len(row) - 1).bit_length())].append(i)
        found = np.zeros(len(rows))
        for length, members in by_length.items():
            for start in range(0, len(members), batch_size):
                chosen = members[start : start + batch_size]
                tokens, mask = _filled([rows[i] for i in chosen], batch_size, length, self.tokenizer.pad_id)
                found[chosen] = np.asarray(self.score(tokens, mask))[: len(chosen)]
        return found.tolist()


def check(path: str, *, template: bool) -> None:
    """Refuse a folder that is not a reward model, or lacks a chat template that is needed; no weights are read."""
    source = open_source(path)
    _head(source, read_spec(source.config()).width)
    if _tokenizer(path).template is None and template:
        raise DataError(f"{path}: question_column needs a chat template, and the tokenizer has none")


def open_model(path: str, dtype: DType) -> OpenModel:
    """Load a model onto the devices of the current mesh, only once; it is kept for as long as the program runs."""
    return _open_model(path, dtype, jax.sharding.get_mesh())


@functools.cache
def _open_model(path: str, dtype: DType, mesh: jax.sharding.Mesh) -> OpenModel:
    # Tied embeddings, because the checkpoint has no projection to logits, and none is used.
    source = open_source(path)
    spec = attrs.evolve(read_spec(source.config()), dtype=dtype, param_dtype=dtype, tied=True)
    head = _head(source, spec.width)
    graphdef, params = nnx.split(
        load(spec, source, None if mesh.empty else Devices(mesh).place, besides=(WEIGHT, BIAS, OTHER_HEAD))
    )

    @jax.jit
    def score(params: Any, tokens: Int[Array, "seq token"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq"]:
        hidden, _ = nnx.merge(graphdef, params)(tokens, mask)
        return hidden[:, -1].astype(jnp.float32) @ head.weight + jnp.float32(head.bias)

    return OpenModel(tokenizer=_tokenizer(path), score=functools.partial(score, params))


def _tokenizer(path: str) -> HuggingFaceTokenizer:
    return HuggingFace(path=path).make([])


def _head(source: Source, width: int) -> ValueHead:
    head = read_score(source, width)
    if head is None:
        raise ConfigError(
            f"{source.name}: has no {WEIGHT}, the head of a reward model; transformers writes it for"
            " ...ForSequenceClassification with num_labels=1"
        )
    return head


def _filled(
    rows: Sequence[list[int]], size: int, length: int, pad_id: int
) -> tuple[Int[Array, "seq token"], Bool[Array, "seq token"]]:
    """Pad rows on the left, and the batch with copies of its first row."""
    tokens, mask = np.full((size, length), pad_id, np.int32), np.zeros((size, length), bool)
    for i in range(size):
        row = rows[i] if i < len(rows) else rows[0]
        tokens[i, length - len(row) :] = row
        mask[i, length - len(row) :] = True
    return jnp.asarray(tokens), jnp.asarray(mask)

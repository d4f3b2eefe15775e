"""A pretrained model: a folder, a GGUF file, or a name on the hub."""

from __future__ import annotations

from pathlib import Path

import attrs
from flax import nnx

from dovetail.errors import ConfigError
from dovetail.protocols import Place, Tokenizer, ValueHead
from dovetail.registry import declares
from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.huggingface.export import save_adapter, save_pretrained
from dovetail_model.huggingface.loading import load
from dovetail_model.huggingface.lookup import read_spec
from dovetail_model.huggingface.score import read_score
from dovetail_model.source.source import Source, open_source
from dovetail_model.spec import Attention, DType, Remat, Spec
from dovetail_model.tokenizer._vocabulary import check_vocabulary
from dovetail_model.transformer import Transformer, abstract


@declares(loaded=True, files=("path",))
@attrs.frozen(kw_only=True)
class Pretrained:
    """A pretrained decoder: a Hugging Face folder, a GGUF file, or a name on the hub.

    Its `model_type` names the architecture; `dovetail names architecture` lists those that are supported. Weights are
    read one tensor at a time, cast, and placed on the mesh, so that at most one tensor is in memory besides the model.

    Args:
        path: a folder (`config.json`, and `model.safetensors` or its shards with `model.safetensors.index.json`); a
            GGUF file; a model on the Hugging Face hub, `OWNER/NAME` or `OWNER/NAME@REVISION`, or one GGUF file of it;
            or the GGUF file in an installed package, `package:NAME`.
        dtype: the type of activations and cache; logits, softmax and norms are float32.
        param_dtype: the type of the weights, whatever their type in the files.
        remat: what the backward pass recomputes in each layer, to save memory: nothing ('none'), everything except
            matrix products ('dots'), everything except products with weights ('dots_no_batch'), or everything ('full').
            'auto' chooses the first of 'none', 'dots_no_batch' and 'full' with which a step fits into memory.
        attention: the implementation: all scores at once ('dense'), in blocks whose scores are never stored
            ('blockwise'), NVIDIA's kernels ('cudnn') or the kernel for TPUs ('splash'); 'auto' chooses by platform and
            shapes. The kernels read whole rows, which `mesh.cp` cuts.
        random: initialise the weights at random; only `config.json` is read.

    Raises:
        ConfigError: for a folder without a model, an unsupported architecture or setting, a truncated file, tensors
            of the wrong shape, or a tokenizer with more ids than the embedding has rows.

    The embedding may have more rows than the tokenizer has ids (most folders pad it); the logits keep them all.
    """

    path: str
    dtype: DType = "float32"
    param_dtype: DType = "float32"
    remat: Remat = "auto"
    attention: Attention = "auto"
    random: bool = False

    def make(self, vocab_size: int, *, rngs: nnx.Rngs, place: Place | None = None) -> Transformer:
        """Return the model with each parameter at its `place`; a randomly initialised model is on one device."""
        spec = self._fitting(self.spec(), vocab_size)
        return Transformer(spec, rngs=rngs) if self.random else load(spec, self._source, place)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Refuse a tokenizer that assigns other ids than the model's own, or has more ids than the embedding has rows.

        It is compared with the folder's `tokenizer.json` or `tokenizer.model`, if there is one.

        Raises:
            ConfigError: naming the difference; or if there is no model in the folder.
        """
        self._fitting(self.spec(), tokenizer.vocab_size)
        if not self.random:
            check_vocabulary(tokenizer, self._source)

    def value_head(self) -> ValueHead | None:
        """Return the head in a reward model's folder, which initialises a critic; None for other folders."""
        return None if self.random else read_score(self._source, self.spec().width)

    def abstract(self, vocab_size: int | None) -> Transformer:
        """Return the model with shapes in place of arrays.

        Only `config.json` is read; models that shipped configs name need no folder.
        """
        spec = self._fitting(self._of_type(self._source.known()), vocab_size or 1)
        return abstract(spec)

    def export(self, model: nnx.Module, folder: Path, *, adapter: bool, dtype: DType | None = None) -> list[Path]:
        """Write a folder like the one the model came from, with its tokenizer, or only its adapter in PEFT's format.

        Raises:
            ConfigError: if the model has no adapter to write, or a `dtype` is given for an adapter.
        """
        if not adapter:
            return save_pretrained(folder, model, source=self._source, dtype=dtype)
        if dtype not in (None, "float32"):
            raise ConfigError("an adapter is written in float32, as it is trained; leave the type out")
        return save_adapter(folder, model, base=self._source.name)

    def spec(self) -> Spec:
        """Return the spec that `config.json` describes."""
        return self._of_type(self._source.config())

    def _of_type(self, config: HuggingFaceConfig) -> Spec:
        return attrs.evolve(
            read_spec(config),
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            remat=self.remat,
            attention=self.attention,
        )

    def _fitting(self, spec: Spec, vocab_size: int) -> Spec:
        if vocab_size > spec.vocab_size:
            raise ConfigError(
                f"{self.path}: the tokenizer has {vocab_size:,} ids and the embedding {spec.vocab_size:,} rows; use the"
                " tokenizer of the model's folder"
            )
        return spec

    @property
    def _source(self) -> Source:
        return open_source(self.path)

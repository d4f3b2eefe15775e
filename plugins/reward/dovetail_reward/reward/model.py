"""Reward `model`: the score of a reward model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import attrs
from annotated_types import Ge


@attrs.frozen(kw_only=True)
class RewardModel:
    """The score that a reward model gives to a prompt with its completion.

        r = w · h_n + b

    with h_n the last hidden state, after the final norm, of a decoder that has read both, and w, b its head, which is
    trained on comparisons: Stiennon et al. 2020, *Learning to summarize from human feedback*, section 3.4. Scores may
    have any size and sign, and are defined only up to a constant: compare them only between completions of one prompt.

    The folder is one that `transformers` writes for sequence classification with one label
    (`LlamaForSequenceClassification`): the files of a decoder that model `pretrained` can load, with `score.weight`,
    [1, width], in place of the head for logits, and its tokenizer. The model runs in JAX, on the policy's devices or on
    those of `reward/mesh`.

    It reads the prompt as the policy got it, the completion, and the token that ends a turn. A model of a different
    family from the policy's needs its own chat template: with `question_column` it reads a conversation in that
    template, made of the messages in this column, and the completion as the assistant's turn.

    Args:
        completions: texts without special tokens.
        prompts: the prompts, as the policy got them; used without a `question_column`.
        examples: the records, from which `question_column` is read.
        path: the folder; `~` is the home folder.
        question_column: the dataset column with the user's message, as a text, or with the messages so far.
        max_tokens: the maximum number of tokens of prompt and completion; if there are more the reward abstains.
        batch_size: the number of texts in a batch. Texts of similar length are batched together, and lengths are
            rounded up to powers of two, so that few programs are compiled and a score does not depend on the rest of
            the batch.
        dtype: the dtype of weights and activations; the head is in float32.

    Returns:
        The scores, and per completion `too_long`, 1 if it had more tokens than `max_tokens`.

    Raises:
        ConfigError: on construction, if the folder does not contain such a model.
        DataError: on construction, if its tokenizer cannot be read, or lacks a chat template that is needed.

    >>> RewardModel(path="no_such_folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dovetail.errors.ConfigError: no_such_folder: is not a folder; a model is a folder with config.json and ...
    """

    path: str
    question_column: str | None = None
    max_tokens: Annotated[int, Ge(2)] = 2048
    batch_size: Annotated[int, Ge(1)] = 8
    dtype: Literal["float32", "bfloat16"] = "float32"

    declares: ClassVar[Mapping[str, Any]] = MappingProxyType({"placed": True, "files": ("path",)})

    def __attrs_post_init__(self) -> None:
        """Check the folder; the weights are read on first use."""
        self._backend.check(self.path, template=self.question_column is not None)

    @property
    def _backend(self) -> Any:
        # It imports jax, which a command that only lists rewards should not wait for.
        return importlib.import_module("dovetail_reward.reward._reward_model")

    def __call__(
        self, completions: Sequence[str], prompts: Sequence[str], examples: Sequence[Mapping[str, Any]]
    ) -> tuple[list[float | None], dict[str, list[float]]]:
        """Return one score per completion, and metrics."""
        opened = self._backend.open_model(self.path, self.dtype)
        if self.question_column is None:
            rows = [opened.continued(*pair) for pair in zip(prompts, completions, strict=True)]
        else:
            questions = [example[self.question_column] for example in examples]
            rows = [opened.answered(*pair) for pair in zip(questions, completions, strict=True)]
        short = [i for i, row in enumerate(rows) if len(row) <= self.max_tokens]
        found = dict(zip(short, opened.scores([rows[i] for i in short], self.batch_size), strict=True))
        scores = [found.get(i) for i in range(len(rows))]
        return scores, {"too_long": [float(len(row) > self.max_tokens) for row in rows]}

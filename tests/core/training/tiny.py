"""A run so small that it takes seconds, compilation included."""

from __future__ import annotations

TINY = (
    "train.task=arithmetic",
    "task.arithmetic.operations=('+',)",
    "task.arithmetic.max_operand=9",
    # a start measures each text: of the usual 10,000 in half of the time of such a run
    "task.arithmetic.train_size=200",
    "task.arithmetic.sft_size=100",
    "task.arithmetic.template='{question}='",
    "task.arithmetic.demonstration='<answer>{answer}</answer>'",
    "tokenizer.sentencepiece.vocab_size=300",
    "model.decoder.width=16",
    "model.decoder.layers=1",
    "model.decoder.heads=2",
    "model.decoder.kv_heads=1",
    "train.rewards=['exact_match', 'match_format_approximately']",
    "train.prompts=4",
    "train.group_size=4",
    "train.max_prompt_tokens=12",
    "train.steps=4",
    "train.lr=1e-2",
    "sampling.max_tokens=6",
    "sft.steps=4",
    "sft.batch_size=8",
    "eval.examples=6",
    "eval.batch_size=4",
    "eval.every=2",
    "eval.success=exact_match",
    "run.checkpoint_every=2",
    "run.sinks=()",
)

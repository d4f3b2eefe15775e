"""TRL's scoring and update of the work `ragged` of `lengths.py`: `python benchmarks/lengths_trl.py > trl.json`.

It runs in an environment of its own with torch, transformers, trl and datasets; nothing of Dovetail is imported. The
model has the shape of ours, the completions have the lengths of `lengths.py` (the same seed), and `GRPOTrainer` runs
its own loop: padding, reference pass, loss, gradients in micro-batches, SGD step. Only sampling is replaced, by
completions that are there already. One thread computes, since threads that wait for each other spend CPU
time. The figures are the CPU seconds of the fastest of `--steps` steps for each micro-batch size.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import trl
from datasets import Dataset
from datasets.table import InMemoryTable
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, TrainerCallback

VOCAB, PROMPTS, GROUP, PROMPT, LONGEST = 4096, 4, 8, 64, 512


class Given(trl.GRPOTrainer):
    """The trainer with completions of given lengths in place of sampled ones."""

    lengths: Any = None

    def _generate(self, prompts: list[str]) -> tuple[Any, ...]:
        read = [self.processing_class(prompt)["input_ids"] for prompt in prompts]
        rng = np.random.default_rng(1)
        written = [rng.integers(1, VOCAB, size).tolist() for size in self.lengths]
        texts = self.processing_class.batch_decode(written)
        return read, written, None, texts, None, {}, None, None


class Clock(TrainerCallback):
    """CPU seconds of each step."""

    def __init__(self) -> None:
        self.begun, self.seconds = 0.0, list[float]()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.begun = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.process_time() - self.begun)


def save_model(folder: Path) -> None:
    """Save a model of the shape in `workloads.py` and a tokenizer whose token 17 is the text '17'."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=1024,
        tie_word_embeddings=False,
        max_position_embeddings=1024,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({str(number): number for number in range(VOCAB)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="0").save_pretrained(folder)


def measure(folder: Path, size: int, steps: int) -> dict[str, Any]:
    """Return the figures of one micro-batch size."""
    rows = PROMPTS * GROUP
    lengths = np.exp(np.random.default_rng(0).normal(np.log(64), 0.9, rows))
    lengths = np.clip(lengths, 1, LONGEST).astype(int)
    rng, clock = np.random.default_rng(2), Clock()
    prompts = [{"prompt": " ".join(map(str, row))} for row in rng.integers(1, VOCAB, (PROMPTS * steps, PROMPT))]
    args = trl.GRPOConfig(
        output_dir=str(folder / "out"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=rows // size,
        num_generations=GROUP,
        max_completion_length=LONGEST,
        max_steps=steps,
        beta=0.04,
        optim="sgd",
        learning_rate=1.0e-6,
        max_grad_norm=1e9,
        report_to=[],
        save_strategy="no",
        logging_steps=1000,
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
    )
    trainer = Given(
        model=str(folder),
        reward_funcs=lambda completions, **_: rng.normal(size=len(completions)).tolist(),
        args=args,
        train_dataset=Dataset(InMemoryTable.from_pylist(prompts), fingerprint="prompts"),
        processing_class=PreTrainedTokenizerFast.from_pretrained(folder),
        callbacks=[clock],
    )
    trainer.lengths = lengths
    trainer.train()
    positions = rows * int(lengths.max()) / int(np.maximum(lengths - 1, 0).sum())
    return {"both_cpu_s": round(min(clock.seconds), 3), "steps": clock.seconds, "positions": round(positions, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[8, 16, 32])
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__}
    with tempfile.TemporaryDirectory() as name:
        save_model(Path(name))
        found = {size: measure(Path(name), size, options.steps) for size in options.micro_batches}
    print(json.dumps({"work": "ragged", **versions, "micro_batches": found}, indent=2))


if __name__ == "__main__":
    main()

"""What the benchmarks of TRL share: a clock, a small model, the settings of a run on CPUs.

They run in an environment of its own with torch, transformers, trl and datasets; nothing of Dovetail is imported. One
thread computes, since threads that wait for each other spend CPU time.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import json
import resource
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

VOCAB = 4096


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
    words = Tokenizer(models.WordLevel({str(number): number for number in range(VOCAB)}, unk_token="1"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="0", unk_token="1")
    tokenizer.save_pretrained(folder)


def settings(folder: Path, **more: Any) -> trl.GRPOConfig:
    """Return the settings of a run in float32 on CPUs that writes nothing but its steps."""
    return trl.GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        max_grad_norm=1e9,
        report_to=[],
        save_strategy="no",
        logging_steps=1000,
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
        **more,
    )


def dataset(rows: list[dict[str, Any]]) -> Dataset:
    """Return rows as a data set in memory; a given fingerprint spares hashing them."""
    return Dataset(InMemoryTable.from_pylist(rows), fingerprint="rows")


def numbers(count: int, length: int) -> list[str]:
    """Return random prompts of so many tokens."""
    drawn = np.random.default_rng(2).integers(1, VOCAB, (count, length))
    return [" ".join(map(str, row)) for row in drawn]


def train(
    kind: Any,
    folder: Path,
    *,
    prompts: tuple[int, int],
    group: int,
    longest: int,
    micro_batch: int,
    steps: int,
    optim: str,
    **attributes: Any,
) -> tuple[Any, list[float]]:
    """Train with random rewards; return the trainer, whose class is `kind`, and the CPU seconds of each step.

    Args:
        kind: a subclass of `GRPOTrainer`.
        folder: where `save_model` has written, which is written into.
        prompts: how many prompts a step has, and of how many tokens.
        group: completions of each prompt.
        longest: the limit of a completion's tokens.
        micro_batch: completions of a micro-batch.
        steps: how many steps.
        optim: TRL's name of the optimiser.
        attributes: what is set on the trainer before it begins.
    """
    (count, length), clock, rng = prompts, Clock(), np.random.default_rng(2)
    trainer = kind(
        model=str(folder),
        reward_funcs=lambda completions, **_: rng.normal(size=len(completions)).tolist(),
        args=settings(
            folder / "out",
            per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=count * group // micro_batch,
            num_generations=group,
            max_completion_length=longest,
            max_steps=steps,
            beta=0.04,
            optim=optim,
            learning_rate=1.0e-6,
        ),
        train_dataset=dataset([{"prompt": text} for text in numbers(count * steps, length)]),
        processing_class=PreTrainedTokenizerFast.from_pretrained(folder),
        callbacks=[clock],
    )
    for name, value in attributes.items():
        setattr(trainer, name, value)
    trainer.train()
    return trainer, clock.seconds


def peak_gib() -> float:
    """Return the greatest resident size of this process so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)


def show(work: str, figures: dict[str, Any]) -> None:
    """Print the figures of a work with the versions."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__}
    print(json.dumps({"work": work, **versions, **figures}, indent=2))


def main(doc: str | None, works: list[str], measure: Any, *, steps: int, micro_batches: list[int]) -> None:
    """Show `measure(work, folder, micro_batch, steps)` of the works, sizes and steps on the command line.

    The arguments are those that it has by default.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("works", nargs="*", default=works, metavar="WORK")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=micro_batches)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        save_model(Path(name))
        for work in options.works:
            found = {size: measure(work, Path(name), size, options.steps) for size in options.micro_batches}
            show(work, {"micro_batches": found})

"""The recipe `smollm2_arithmetic` by TRL: `python benchmarks/trl/smollm2.py FOLDER`; ours: `benchmarks/smollm2.py`.

FOLDER is SmolLM2-135M-Instruct as a Hugging Face folder, such as the one that `make smollm2` exports. Sums, chat
template, group, micro-batch, limit of 12 new tokens, AdamW, learning rate and type are those of the recipe. The first
step warms up.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trl
from common import Clock, dataset, peak_gib, settings, show
from transformers import AutoTokenizer

PROMPTS, GROUP, LARGEST = 16, 8, 30


def right(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    """Return 1 where the last number of a completion is the answer."""
    found = [re.findall(r"-?\d+", said[-1]["content"]) for said in completions]
    return [float(bool(all_) and all_[-1] == wanted) for all_, wanted in zip(found, answer, strict=True)]


def sums(count: int) -> list[dict[str, Any]]:
    """Return questions as chats, with their answers."""
    pairs = np.random.default_rng(0).integers(0, LARGEST + 1, (count, 2))
    return [{"prompt": [{"role": "user", "content": f"{a} + {b} = ?"}], "answer": str(a + b)} for a, b in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(1)
    clock = Clock()
    with tempfile.TemporaryDirectory() as out:
        trainer = trl.GRPOTrainer(
            model=str(options.folder),
            reward_funcs=right,
            args=settings(
                Path(out),
                per_device_train_batch_size=options.micro_batch,
                gradient_accumulation_steps=PROMPTS * GROUP // options.micro_batch,
                num_generations=GROUP,
                max_completion_length=12,
                max_steps=options.steps,
                temperature=1.0,
                beta=0.0,
                optim="adamw_torch",
                learning_rate=1.0e-5,
                lr_scheduler_type="constant",
            ),
            train_dataset=dataset(sums(PROMPTS * options.steps)),
            processing_class=AutoTokenizer.from_pretrained(options.folder),
            callbacks=[clock],
        )
        trainer.train()
    steps = [round(seconds, 1) for seconds in clock.seconds]
    show("smollm2_arithmetic", {"cpu_s": min(steps[1:]), "steps": steps, "peak_gib": peak_gib()})


if __name__ == "__main__":
    main()

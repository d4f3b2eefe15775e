"""TRL's scoring and update of works of `benchmarks/lengths.py`: `python benchmarks/trl/lengths.py W1 ragged`.

The model has the shape of ours, the completions have the lengths of `lengths.py` (the same seed), and `GRPOTrainer`
runs its own loop: padding, reference pass, loss, gradients in micro-batches, SGD step. Only sampling is replaced, by
completions that are there already. The figures are the CPU seconds of the fastest of `--steps` steps for each
micro-batch size.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import trl
from common import VOCAB, main, train

GROUP, PROMPT = 8, 64
WORKS = {"W1": (16, 64), "ragged": (4, 512), "many": (16, 512)}
"""The prompts of each work, and the longest completion."""


class Given(trl.GRPOTrainer):
    """The trainer with completions of given lengths in place of sampled ones."""

    lengths: Any = None

    def _generate(self, prompts: list[str]) -> tuple[Any, ...]:
        read = [self.processing_class(prompt)["input_ids"] for prompt in prompts]
        rng = np.random.default_rng(1)
        written = [rng.integers(1, VOCAB, size).tolist() for size in self.lengths]
        texts = self.processing_class.batch_decode(written)
        return read, written, None, texts, None, {}, None, None


def measure(work: str, folder: Path, size: int, steps: int) -> dict[str, Any]:
    """Return the figures of one micro-batch size."""
    prompts, longest = WORKS[work]
    rows = prompts * GROUP
    lengths = np.full(rows, longest)
    if work != "W1":
        lengths = np.exp(np.random.default_rng(0).normal(np.log(64), 0.9, rows))
        lengths = np.clip(lengths, 1, longest).astype(int)
    _, seconds = train(
        Given,
        folder,
        prompts=(prompts, PROMPT),
        group=GROUP,
        longest=longest,
        micro_batch=size,
        steps=steps,
        optim="sgd",
        lengths=lengths,
    )
    positions = rows * int(lengths.max()) / int(np.maximum(lengths - 1, 0).sum())
    return {"both_cpu_s": round(min(seconds), 3), "steps": seconds, "positions": round(positions, 2)}


if __name__ == "__main__":
    main(__doc__, list(WORKS), measure, steps=3, micro_batches=[8, 16, 32])

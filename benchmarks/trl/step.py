"""Whole steps of TRL for the works of `benchmarks/step.py`: `python benchmarks/trl/step.py W1 W4`.

The model has the shape of ours, and `GRPOTrainer` runs its own loop: generation by transformers, reference pass, loss,
gradients in micro-batches, AdamW. Completions end where the work says: a criterion ends each row of a batch at a length
drawn from the work's distribution, and nothing else does. The figures are CPU seconds, means over the steps after the
first, and of them those of generation.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trl
from common import main, peak_gib, train
from transformers import StoppingCriteria

PROMPTS, PROMPT, GROUP, LONGEST = 16, 64, 8, 64
MEDIAN, SIGMA, CAP = 64, 0.9, 512


def drawn(work: str, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Return the lengths of a step's completions."""
    if work == "W2":
        return rng.integers(4, LONGEST + 1, rows)
    if work == "W4":
        return np.clip(rng.lognormal(np.log(MEDIAN), SIGMA, rows).astype(int), 1, CAP)
    return np.full(rows, LONGEST)


class AtLength(StoppingCriteria):
    """Ends each row one token before its length, since TRL counts the padding after it as its end of sequence."""

    def __init__(self, prompt: int, lengths: np.ndarray, longest: int) -> None:
        self.ends = torch.tensor(prompt + np.where(lengths < longest, lengths - 1, longest))

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        return input_ids.shape[1] >= self.ends


class Timed(trl.GRPOTrainer):
    """The trainer with completions of given lengths, and a clock at its generation."""

    work, spent = "W1", ()

    def _generate_single_turn(self, prompt_ids: list[list[int]], *rest: Any, **named: Any) -> Any:
        rng = np.random.default_rng([0, len(self.spent)])
        lengths = drawn(self.work, rng, len(prompt_ids))
        plain, begun = self.model.generate, time.process_time()
        self.model.generate = lambda **inputs: plain(  # pyright: ignore[reportAttributeAccessIssue]
            **inputs,
            stopping_criteria=[AtLength(inputs["input_ids"].shape[1], lengths, self.args.max_completion_length)],
        )
        self.generation_config.suppress_tokens = [0]
        try:
            made = super()._generate_single_turn(prompt_ids, *rest, **named)
        finally:
            self.model.generate = plain
        found = np.array([len(row) for row in made[0]])
        if np.abs(found - lengths).max() > 1:
            raise AssertionError(f"completions have {found} tokens instead of {lengths}")
        self.spent = (*self.spent, time.process_time() - begun)
        return made


def measure(work: str, folder: Path, size: int, steps: int) -> dict[str, Any]:
    """Return the figures of a work with one size of micro-batches."""
    trainer, seconds = train(
        Timed,
        folder,
        prompts=(4, 448) if work == "W3" else (PROMPTS, PROMPT),
        group=16 if work == "W3" else GROUP,
        longest=CAP if work == "W4" else LONGEST,
        micro_batch=size,
        steps=steps,
        optim="adamw_torch",
        work=work,
    )
    return {
        "step_cpu_s": round(statistics.mean(seconds[1:]), 2),
        "generation_cpu_s": round(statistics.mean(trainer.spent[1:]), 2),
        "steps": [round(each, 2) for each in seconds],
        "peak_gib": peak_gib(),
    }


if __name__ == "__main__":
    main(__doc__, ["W1", "W4"], measure, steps=4, micro_batches=[8])

"""TRL's generation of the episodes of `benchmarks/turns.py`: `python benchmarks/trl/turns.py`.

`GRPOTrainer` runs its own loop over turns: it samples, calls a tool, renders the result through the chat template and
samples again. The episodes have the same numbers of turns, tokens of a turn and of an observation as ours, and the
model has the same shape. A model with random weights calls no tool, so what a turn says is replaced where TRL parses
it: every turn but the last of its episode is a call. The figures are CPU seconds of generation, without any update.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trl
import trl.trainer.grpo_trainer as module
from common import dataset, numbers, save_model, settings, show
from transformers import PreTrainedTokenizerFast

TEMPLATE = """{% for message in messages %}{{ message.content }} {% for call in message.tool_calls or [] %}\
{{ call.function.name }} {{ call.function.arguments }} {% endfor %}{% endfor %}"""


class Said:
    """What TRL reads from the turns of a batch: calls of the tool, and none in the last turn of an episode."""

    def __init__(self, options: argparse.Namespace, step: int) -> None:
        rng = np.random.default_rng([0, step])
        rows = options.prompts * options.samples
        self.last = rng.integers(max(1, options.turns - 2), options.turns + 1, rows)
        self.turns = [0] * rows
        self.lengths = np.random.default_rng([step, 1]).integers(*options.observation, rows, endpoint=True)
        self.waiting = deque(range(rows))

    def parse(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return the message of the next row that has spoken; rows speak in order, round after round."""
        row = self.waiting.popleft()
        self.turns[row] += 1
        if self.turns[row] >= self.last[row]:
            return {"role": "assistant", "content": "2"}
        self.waiting.append(row)
        call = {"type": "function", "function": {"name": "look", "arguments": {"length": int(self.lengths[row])}}}
        return {"role": "assistant", "content": "2", "tool_calls": [call]}


def look(length: int) -> str:
    """Look around.

    Args:
        length: the number of tokens to return.
    """
    return " ".join(["3"] * length)


def trainer(folder: Path, options: argparse.Namespace) -> trl.GRPOTrainer:
    """Return a trainer whose tool is `look`."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.response_template = {"defaults": {"role": "assistant"}}  # TRL wants one; `Said` is asked instead
    rows = options.prompts * options.samples
    made = trl.GRPOTrainer(
        model=str(folder),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=settings(
            folder / "out",
            per_device_train_batch_size=rows,
            num_generations=options.samples,
            max_completion_length=options.max_tokens,
            max_tool_calling_iterations=options.turns,
        ),
        train_dataset=dataset(chats(options)),
        processing_class=tokenizer,
        tools=[look],
    )
    made.generation_config.max_new_tokens = options.turn_tokens  # of each turn, not of the episode
    made.generation_config.eos_token_id = None
    made._sync_tool_dicts, made._async_tool_dicts = [{"look": look}] * rows, [{}] * rows
    return made


def chats(options: argparse.Namespace) -> list[dict[str, Any]]:
    return [{"prompt": [{"role": "user", "content": text}]} for text in numbers(options.prompts, options.prompt_tokens)]


def measure(made: trl.GRPOTrainer, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of all batches but the first."""
    prompts = [row["prompt"] for row in chats(options) for _ in range(options.samples)]
    seconds, sampled = list[float](), 0.0
    for step in range(options.repeats + 1):
        module.parse_response = Said(options, step).parse
        begun = time.process_time()
        _, written, mask, *_ = made._generate(prompts)
        seconds.append(round(time.process_time() - begun, 3))
        sampled = sum(map(sum, mask)) / len(written)
    cpu = statistics.median(seconds[1:])
    each = {"cpu_s": cpu, "calls": seconds, "sampled_per_episode": round(sampled, 1)}
    return each | {"episodes_per_cpu_s": round(len(prompts) / cpu, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8, help="episodes of each prompt")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=6, help="most turns of an episode")
    parser.add_argument("--turn-tokens", type=int, default=16, help="most tokens of a turn")
    parser.add_argument("--observation", type=int, nargs=2, default=(8, 24), help="least and most tokens")
    parser.add_argument("--max-tokens", type=int, default=256, help="most tokens of an episode")
    parser.add_argument("--repeats", type=int, default=3, help="timed calls")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        save_model(Path(name))
        show("turns", measure(trainer(Path(name), options), options))


if __name__ == "__main__":
    main()

"""A file with reward functions such as a user of TRL has; `test_functions.py` loads it by its path."""

from __future__ import annotations

import numpy as np


def accuracy(completions, answer, **kwargs):
    return [float(text.strip() == right) for text, right in zip(completions, answer, strict=True)]


def everything(prompts, completions, completion_ids, log_metric, log_extra, **kwargs):
    log_metric("columns", len(kwargs))
    log_extra("ids", [len(ids) for ids in completion_ids])
    log_extra("words", ["not a number"] * len(completions))
    assert "prompt" not in kwargs
    return [None if text == "" else len(prompt) for prompt, text in zip(prompts, completions, strict=True)]


def of_numpy(completions, log_metric, log_extra):
    lengths = np.array([len(text) for text in completions])
    log_extra("short", lengths < 2)
    log_extra("length", lengths.astype(np.float32))
    log_metric("mean", lengths.mean())
    return lengths


def of_messages(prompts, completions):
    assert prompts[0][0]["role"] == "user"
    return [len(messages[0]["content"]) for messages in completions]


async def awaited(completions, scale=1.0):
    return [scale * len(text) for text in completions]


def optional(completions, hint=None):
    return [0.0 if hint is None else 1.0 for _ in completions]


def of_the_trainer(completions, trainer_state):
    return [0.0 for _ in completions]


def by_position(completions, /):
    return [0.0 for _ in completions]

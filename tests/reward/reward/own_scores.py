"""A file with reward functions such as a user of verl has; `tests/reward/test_compute_score.py` loads it by its path."""

from __future__ import annotations

import asyncio
import os
import time

import numpy as np


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str.strip().endswith(str(ground_truth)))


def all_forms(data_source, solution_str, ground_truth, extra_info):
    return {"dict": {"score": 0.5, "acc": True}, "bool": True, "list": [0.25, "text"], "int": 2, "none": None}[
        solution_str
    ]


def of_numpy(data_source, solution_str, ground_truth, extra_info):
    return {"score": np.float32(0.5), "right": np.bool_(True), "words": np.int64(3), "share": np.float32(0.25)}


def scaled(data_source, solution_str, ground_truth, extra_info, scale=1.0):
    return scale * extra_info["value"]


def misbehaving(data_source, solution_str, ground_truth, extra_info):
    print("this goes to stderr, and not into the answer")
    if solution_str == "sleeps":
        time.sleep(60)
    if solution_str == "is busy":
        return float(pow(9, 9**9))
    if solution_str == "ends":
        os._exit(3)
    if solution_str == "raises":
        raise KeyError(data_source)
    return 1.0


async def judged(data_source, solution_str, ground_truth, extra_info):
    at_work.append(1)
    most.append(len(at_work))
    if solution_str != "at once":  # which no time limit ends, however late an event loop is
        await asyncio.sleep(60 if solution_str == "sleeps" else 0.02)
    at_work.pop()
    if solution_str == "raises":
        raise KeyError(data_source)
    return {"score": 1.0, "words": len(solution_str.split()), "why": "because"}


at_work, most = [], []


def batch(data_sources, solution_strs, ground_truths, extra_infos, bonus=0.0):
    return [len(text) + bonus for text in solution_strs]


def three(data_source, solution_str, ground_truth):
    return 1.0


NOT_A_FUNCTION = 1.0

"""What is said of an extended run whose schedules follow the number of steps."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from tests.core.training.tiny import TINY

import dovetail_optim
from dovetail.config import load
from dovetail.step.algorithm import assemble
from dovetail_optim.extended import told


def line(tmp_path, *overrides, after=100, before=100, total=200):
    change = {"run_id": "a-s0", "from": before, "to": total, "after": after}
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "b-s0", "extended": [change]}))
    return told(tmp_path, assemble(load(None, [*TINY, *overrides])))


def test_a_curve_over_all_steps_is_named(tmp_path):
    assert line(tmp_path, "train.lr_schedule=warmup_cosine") == (
        "lr_schedule.warmup_cosine follows the number of steps, which is 200 since step 100 and was 100 before: the"
        " result is not that of 200 steps in one piece"
    )


@pytest.mark.parametrize(
    ("overrides", "after", "names"),
    [
        (["train.lr_schedule=constant"], 100, ""),
        (["train.lr_schedule=constant", "lr_schedule.constant.warmup_ratio=0.1"], 100, "lr_schedule.constant follows"),
        (["train.lr_schedule=constant", "lr_schedule.constant.warmup_steps=10"], 100, ""),
        (["train.lr_schedule=wsd", "lr_schedule.warmup_stable_decay.warmup_steps=5"], 60, ""),
        (["train.lr_schedule=wsd"], 100, "lr_schedule.warmup_stable_decay follows"),
        (["train.lr_schedule=constant", "train.schedule=linear"], 100, "schedule.linear follows"),
        (["train.lr_schedule=cosine"], 0, ""),
    ],
)
def test_only_what_has_been_another_curve_so_far_is_named(overrides, after, names, tmp_path):
    loss = ["train.loss_mask=['pf_ppo']"] if "train.schedule=linear" in overrides else []
    assert line(tmp_path, *overrides, *loss, after=after).startswith(names or "\0"[:0])
    assert bool(line(tmp_path, *overrides, *loss, after=after)) == bool(names)


def test_a_run_that_was_not_extended_says_nothing(tmp_path, capsys):
    (tmp_path / "run.json").write_text('{"run_id": "b-s0"}')
    dovetail_optim.dovetail_run_start(tmp_path, SimpleNamespace(algorithm=assemble(load(None, list(TINY)))))
    assert capsys.readouterr().err == ""


def test_it_is_said_when_the_run_starts(tmp_path, capsys):
    said = line(tmp_path, "train.lr_schedule=cosine")
    algorithm = assemble(load(None, [*TINY, "train.lr_schedule=cosine"]))
    dovetail_optim.dovetail_run_start(tmp_path, SimpleNamespace(algorithm=algorithm))
    assert capsys.readouterr().err == f"{said}\n"

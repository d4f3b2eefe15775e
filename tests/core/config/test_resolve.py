import subprocess
import sys
from collections.abc import Callable

import gin

from dovetail.config import Config

LoadText = Callable[..., Config]
Complaints = Callable[..., list[str]]


def test_all_that_is_wrong_is_reported_at_once_by_line(complaints: Complaints):
    text = """import os
train.stpes = 3
policy_loss.gspo.epsilon_lo = 1
train.lr = %rate
train.policy_loss = gpso
unused = 3
"""
    lines = complaints(text, "train.group_size=x")
    assert [line.split(" ")[0] for line in lines] == [f"x.gin:{n}:" for n in range(1, 7)] + ["--set"]


def test_after_a_syntax_error_nothing_is_said_about_what_may_be_lost(complaints: Complaints):
    (line,) = complaints("rate = 1 2\ntrain.lr = %rate\n")
    assert line.startswith("x.gin:1: syntax error")


def test_reading_configs_imports_nothing_heavy():
    code = "import sys, dovetail.config; print([m for m in ('jax', 'numpy', 'tensorflow', 'typeguard') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_gin_keeps_no_state(load_text: LoadText):
    load_text("train.steps = 3\nkl.k3.clamp = 3\n")
    assert load_text("").train.steps != 3
    assert not gin.config_str().strip()

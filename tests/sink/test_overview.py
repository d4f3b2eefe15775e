"""The messages of a run at its start and while it runs."""

import re

from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.training.loop import train


def test_the_first_step_is_not_silent_and_a_quick_one_is(tmp_path, capsys):
    sizes = (
        "sft.steps=0",
        "train.steps=2",
        "run.sinks=('console',)",
        "eval.every=None",
        "train.micro_batch_size=8",
        "train.max_prompt_tokens=13",
    )
    train(load(None, [*TINY, *sizes]), tmp_path)
    out, err = capsys.readouterr()
    told = [re.sub(r" \(\d+ s\)$", "", line.partition("] ")[2]) for line in err.splitlines() if line.startswith("[")]
    size = next(line for line in told if line.startswith("loading policy"))
    assert re.fullmatch(r"loading policy, \d+\.\d kB", size)
    order = [size, "sampling 0 / 16", "rewards", "scoring", "update", "handing over the new weights"]
    found = iter(told)
    assert all(phase in found for phase in order), told
    assert "compiling update" in told
    assert told.count("update") == 1, "of the first step; the second is over before a line is worth it"
    assert re.search(r"^device +\S.* x 1 of \d+ \(cpu\)$", err, re.MULTILINE)
    assert re.search(r"^model +[\d.]+ K parameters, .* stored as float32, computed in float32$", err, re.MULTILINE)
    assert re.search(r"^data +\S+ prompts, each used \S+ times in 2 steps; \d+ in an evaluation$", err, re.MULTILINE)
    assert "16 completions in mini-batches of 16, micro-batches of 8" in err
    assert re.search(r"^memory +\d+\.\d [MG]B planned of \d+\.\d GB on each device; remat none, ", err, re.MULTILINE)
    assert [line.split()[0] for line in out.splitlines()] == ["phase=rl", "phase=rl"]

"""A run with groups left over, against its own forecast."""

import numpy as np
import pytest
from tests.core.training.test_oversample import MORE, WANTED, config

from dovetail.cli import main
from dovetail.run.files import read_lines
from dovetail.training.loop import train
from dovetail_lab.simulate.fit import fit

PARTS = ("rollout", "reward", "waiting", "scoring", "update", "sync")


@pytest.mark.slow
def test_a_run_that_oversamples_is_what_its_spans_say(tmp_path, capsys):
    """What a few groups left over at the end yield too much is within the tolerance."""
    train(config("train.steps=24", "run.checkpoint_every=100"), tmp_path)
    found = fit(tmp_path)
    assert found.drawing is not None
    assert found.drawing.size == WANTED + MORE
    timed = [line for line in read_lines(tmp_path / "timings.jsonl", "rl") if "time/update" in line]
    kept = {line["step"] for line in timed if "compile/programs" not in line}
    lines = read_lines(tmp_path / "spans.jsonl", "rl")
    spans = [[span for line in lines if line["step"] == step for span in line["spans"]] for step in sorted(kept)]
    seconds = [sum(end - begin for _, _, name, begin, end in each if name in PARTS) for each in spans]
    drawn = [[name for _, _, name, _, _ in each].count("rollout") for each in spans]
    assert drawn == found.rounds.tolist()
    at = found.forecast(0)
    assert at.rounds == pytest.approx(found.rounds.mean(), rel=0.15)
    assert at.step == pytest.approx(np.mean(seconds), rel=0.15)
    assert at.rounds == pytest.approx(WANTED / (found.drawing.passing * (WANTED + MORE)), rel=0.02)
    assert main(["simulate", str(tmp_path), "--oversample", "0,4", "--staleness", "0"]) == 0
    rows = [line.split()[:4] for line in capsys.readouterr().out.splitlines()[-2:]]
    assert rows == [["0", "4", "1", "0"], ["0", "4", "1", "4"]]

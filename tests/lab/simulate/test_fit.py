"""The fit recovers what made the records, and scales it."""

import json

import numpy as np
import pytest

from dovetail.cli import main
from dovetail.config import dump, load
from dovetail.errors import RunError
from dovetail_lab.simulate.fit import fit

MEAN, MOST = "completion/length_mean", "completion/length_max"
ROWS, PER_POSITION, PER_TOKEN, TRAINING = 32, 0.01, 1e-4, 1.5


@pytest.fixture
def run(tmp_path):
    """A run whose decoding follows the model exactly, with a first step that compiled."""
    settings = ["train.prompts=4", "train.group_size=8", "sampling.max_tokens=400", "train.steps=40"]
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "a"}))
    (tmp_path / "config.gin").write_text(dump(load(None, settings)))
    lengths = np.minimum(np.random.default_rng(0).lognormal(4, 0.6, (40, ROWS)), 400).round()
    metrics, timings = [], []
    for step, row in enumerate(lengths):
        mean, longest = row.mean(), row.max()
        decoding = PER_POSITION * longest + PER_TOKEN * row.sum()
        metrics.append({"completion/length_mean": mean, "completion/length_max": longest})
        timings.append({"time/rollout": decoding, "time/reward": 0.5, "time/scoring": 0.5, "time/update": 1.0})
        if step == 0:
            timings[0] |= {"time/update": 100.0, "compile/programs": 3.0}
    for name, lines in (("metrics.jsonl", metrics), ("timings.jsonl", timings)):
        records = (json.dumps({"phase": "rl", "step": step, **line}) for step, line in enumerate(lines))
        (tmp_path / name).write_text("".join(f"{line}\n" for line in records))
    return tmp_path


def test_costs_and_lengths_are_those_that_made_the_records(run):
    found = fit(run)
    assert len(found.tokens) == 39, "the step that compiled is left out"
    assert found.costs() == pytest.approx((PER_POSITION, PER_TOKEN), rel=1e-6)
    assert not found.doubtful
    assert found.spread == pytest.approx(0.6, rel=0.15)


def test_forecasts_are_the_run_itself_and_its_limits(run):
    found = fit(run)
    sampler = found.decoding.mean() + 0.5
    assert found.forecast(0).step == pytest.approx(sampler + TRAINING, rel=0.01)
    assert found.forecast(50).step == pytest.approx(max(sampler, TRAINING), rel=0.02)
    longest_alone = PER_POSITION * found.longest.mean() + 0.5
    assert found.forecast(0, engines=10**6).step == pytest.approx(longest_alone + TRAINING, rel=0.01)
    twice = found.forecast(0, group_size=16).step
    assert twice > sampler + 2 * TRAINING + 0.5, "training and rewards double, and the longest completion is longer"
    assert twice < 2 * found.forecast(0).step


def test_steps_that_are_alike_need_an_engine_that_tells_its_pace(run, capsys):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    noise = np.random.default_rng(0).normal(1, [[0.01], [0.01], [0.05]], (3, len(lines)))
    alike = [{**line, MEAN: 60.0 * x, MOST: 200.0 * y} for line, x, y in zip(lines, *noise[:2], strict=True)]
    times = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    for line, of, factor in zip(times, alike, noise[2], strict=True):
        line["time/rollout"] = factor * (PER_POSITION * of[MOST] + PER_TOKEN * ROWS * of[MEAN])
    rewrite(run, metrics=alike, timings=times)
    assert fit(run).doubtful
    assert main(["simulate", str(run), "--engines", "1,4"]) == 0
    assert "All recorded steps are so much alike" in capsys.readouterr().out

    rewrite(run, timings=[{**line, "rollout/seconds_per_token": PER_POSITION} for line in times])
    found = fit(run)
    assert not found.doubtful
    assert found.costs() == pytest.approx((PER_POSITION, PER_TOKEN), rel=0.2)
    assert main(["simulate", str(run), "--engines", "1,4"]) == 0
    assert "alike" not in capsys.readouterr().out


def rewrite(run, **records):
    for name, lines in records.items():
        (run / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_a_run_with_servers_of_its_own_is_read_if_it_is_trusted(run, capsys):
    settings = ["train.prompts=4", "train.group_size=8", "train.rollout=vllm", "rollout.vllm.command='vllm-of-mine'"]
    (run / "config.gin").write_text(dump(load(None, settings)))
    assert main(["simulate", str(run)]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "rollout.vllm.command = 'vllm-of-mine' names a program to run" in line, "what is not set names none"
    assert "add --trust" in line
    assert main(["simulate", str(run), "--trust"]) == 0


def test_the_command_prints_a_row_for_each_setting(run, capsys):
    assert main(["simulate", str(run), "--staleness", "0,1", "--engines", "1,2"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[3:]]
    assert [row[:3] for row in rows] == [["0", "8", "1"], ["1", "8", "1"], ["0", "8", "2"], ["1", "8", "2"]]


def test_oversampling_without_a_filter_is_refused(run, capsys):
    assert main(["simulate", str(run), "--oversample", "4"]) != 0
    assert "has no train.group_filter" in capsys.readouterr().err


def test_too_few_steps_are_refused(run):
    lines = (run / "timings.jsonl").read_text().splitlines(keepends=True)
    (run / "timings.jsonl").write_text("".join(lines[:2]))
    with pytest.raises(RunError, match="1 of 2 steps in which nothing was compiled, and a fit needs 3"):
        fit(run)

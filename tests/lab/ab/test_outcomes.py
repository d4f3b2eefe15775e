"""The result of a run: the mean over its window, or none if a value in the window is NaN."""

import json
import math
from pathlib import Path

import pytest
from tests.lab.ab.stub import ARMS, BETTER, CONTROL, QUICK, ab, train

from dovetail.config import load

FOLDER = Path("ab/mine")


def result() -> dict:
    return json.loads((FOLDER / "ab.json").read_text())["result"]


def records(value: float, step: int):
    """Return a training function whose better arm records `value` at one step; otherwise the arms are equal."""

    def run(folder: Path) -> None:
        config = load(folder / "config.gin")
        train(config, folder)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            if "eval/accuracy" in line:
                line["eval/accuracy"] = 0.5
                if line["step"] == step and round(config.train.lr, 3) == BETTER:
                    line["eval/accuracy"] = value
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    return run


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_result_that_is_not_finite_is_a_lost_run_and_decides_nothing(here, capsys, value):
    here[2] = records(value, step=40)
    for seed in (0, 1, 3, 4, 5):
        here[seed] = records(0.5, step=40)
    ab(*ARMS, *QUICK)
    arm = result()["arms"]["up"]
    assert (arm["verdict"], arm["pairs"], arm["p"]) == ("undecided", 5, 1.0)
    assert "lost 1 of 6 runs" in capsys.readouterr().out
    assert f"eval/accuracy is {value} at step 40, within the window last2" in (FOLDER / "ab.md").read_text()


def test_what_is_not_finite_before_the_window_loses_nothing(here):
    here[2] = records(math.nan, step=10)
    ab(*ARMS, *QUICK)
    assert result()["arms"]["up"]["pairs"] == 6
    assert "nan" not in (FOLDER / "ab.html").read_text(), "no picture has points that are not numbers"


def test_each_arm_has_the_window_of_its_own_length(here):
    """The last tenth of 40 steps has their last evaluation; the last tenth of 80 steps is not everything after step 36."""
    long = ("--arm", f"base:train.lr={CONTROL}", "--arm", f"up:train.lr={BETTER},train.steps=80")
    ab(*long, *QUICK, "--window", "last10%")
    (run,) = [each for each in result()["runs"] if (each["arm"], each["seed"]) == ("up", 0)]
    lines = map(json.loads, (FOLDER / "trials" / run["id"] / "metrics.jsonl").read_text().splitlines())
    curve = {line["step"]: line["eval/accuracy"] for line in lines if "eval/accuracy" in line}
    assert run["value"] == pytest.approx(curve[80])
    assert "base 40 steps, up 80 steps" in (FOLDER / "ab.html").read_text()

"""The table and the picture of the recipes of several turns, from the records of runs."""

import importlib.util
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "environments.py"


@pytest.fixture
def environments():
    spec = importlib.util.spec_from_file_location("environments", BENCHMARK)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def runs(tmp_path):
    made = []
    for seed, end in enumerate((0.8, 0.9)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        evaluations = [
            {"phase": "rl", "step": step, "eval/sampled_accuracy": rate} for step, rate in ((0, 0.5), (9, end))
        ]
        lines = [{"phase": "rl", "step": 4, "reward/mean": 0.1}, *evaluations]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder / "cpu.json").write_text(json.dumps({"seconds": 100 + seed}))
        made.append(folder)
    return made


def test_a_row_has_the_way_from_the_floor_to_the_ceiling(environments, runs):
    row = environments.row(environments.Recipe("game", 0.4, 0.9), runs)
    assert row == "| `game` | 40.0% | 90.0% | 50.0%, 50.0% | 80.0%, 90.0% | 80%, 100% | 100 to 101 |"


def test_the_picture_has_a_line_for_each_run_and_one_for_their_mean(environments, runs):
    drawn = ET.fromstring(environments.draw([(environments.Recipe("game", 0.4, 0.9), runs)]))
    lines = [line for line in drawn.iter() if "line" in line.get("class", "").split()]
    thin = [line for line in drawn.iter() if "thin" in line.get("class", "").split()]
    assert (len(thin), len(lines)) == (2, 1)

"""The page about own data, executed word for word on a tiny random model."""

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.tiny_folder import write

from dovetail.cli import main
from dovetail.config import load
from dovetail.run.summary import series
from dovetail.training.columns import make_scorer

PAGE = (Path(__file__).parents[1] / "docs" / "own_data.md").read_text()
SMALLER = ("train.steps=2", "train.prompts=2", "train.group_size=2", "sampling.max_tokens=8", "eval.examples=3")
SMALLER += ("eval.batch_size=4", "eval.every=2", "adapter.lora.rank=2", "run.sinks=()")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with the page's files."""
    files = re.findall(r"```(?:python|gin)\n# (\S+)\n(.*?)```", PAGE, re.S)
    assert [name for name, _ in files] == ["rewards.py", "mine.gin"]
    for name, text in files:
        (tmp_path / name).write_text(text)
    records = re.findall(r"```json\n(.*?)```", PAGE, re.S)[0].splitlines()
    more = [json.dumps({"problem": f"What is {i} + 1?", "solution": str(i + 1)}) for i in range(6)]
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join([*records, *more]) + "\n")
    (tmp_path / "questions.jsonl").write_text(records[0] + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_rewards_are_those_of_the_page(place):
    scorer = make_scorer(load("mine.gin"))
    scorer.check_columns(("problem", "solution"), "records")
    function = scorer.rewards[0].component.bind(path="rewards.py", name=("correct", "short"), weights=(1.0, 0.1))
    scores, parts = function(["It is 27.", "no"], ["?"] * 2, [{"solution": "27"}] * 2, [[1] * 64, [1] * 256])
    assert parts == {"correct": [1.0, 0.0], "short": [0.75, 0.0]}
    assert scores == pytest.approx([1.075, 0.0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:rounding to bfloat16 loses")  # a tiny adapter that has learnt for two steps
def test_the_commands_run(place):
    write(place / "Qwen" / "Qwen2.5-0.5B-Instruct")
    for line in re.findall(r"```sh\n(.*?)```", PAGE, re.S)[0].strip().splitlines():
        program, command, *words = shlex.split(line)
        assert program == "dovetail"
        tiny = [part for override in SMALLER for part in ("--set", override)] if command == "train" else []
        assert main([command, *words, *tiny]) == 0, line
    assert len(series(place / "mine", "reward/functions/correct")) == 2
    answer = json.loads((place / "answers.jsonl").read_text().splitlines()[0])
    assert "You add numbers." in answer["prompt"]
    assert (place / "mine-hf" / "config.json").exists()
    assert (place / "mine" / "report.html").exists()

"""The tutorial's commands, executed word for word on a tiny random model of the same architecture."""

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.tiny_folder import write

from dovetail.cli import main
from dovetail.run.files import read_lines
from dovetail.run.summary import series

PAGE = (Path(__file__).parents[1] / "docs" / "tutorial_qwen_gsm8k.md").read_text()
SMALLER = (
    "train.steps=2",
    "train.prompts=2",
    "sampling.max_tokens=8",
    "eval.examples=3",
    "eval.batch_size=4",
    "eval.every=2",
    "adapter.lora.rank=2",
    "run.sinks=()",
)
COMMANDS = [
    shlex.split(line) for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.strip().splitlines()
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A working directory as the tutorial requires it."""
    place = tmp_path_factory.mktemp("tutorial")
    write(place / "Qwen" / "Qwen2.5-0.5B-Instruct")
    data = place / "openai" / "gsm8k"
    data.mkdir(parents=True)
    for name, rows in (("train", 6), ("test", 5)):
        lines = [{"question": f"What is {i} + {i}?", "answer": f"Twice {i}.\n#### {2 * i}"} for i in range(rows)]
        (data / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (place / "questions.jsonl").write_text('{"prompt": "What is 6 * 7?"}\n')
    (place / "qwen_gsm8k.gin").write_text(re.findall(r"```gin\n(.*?)```", PAGE, re.S)[0])
    return place


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:rounding to bfloat16 loses")  # a tiny adapter that has learnt for two steps
def test_the_commands_run_and_do_what_the_page_says(place, monkeypatch):
    monkeypatch.chdir(place)
    for program, command, *words in COMMANDS:
        assert program == "dovetail"
        smaller = SMALLER if "qwen_gsm8k.gin" in words else ("eval.batch_size=4",)
        sets = [part for override in smaller for part in ("--set", override)] if command != "export" else []
        assert main([command, *words, *sets]) == 0, words
    assert [step for step, _ in series(place / "qwen-grpo", "reward/mean")] == [1, 2]
    before = json.loads((place / "before" / "report.json").read_text())["sources"]["all"]
    assert before["accuracy"]["n"] == 5
    assert {"partial_accuracy", "format_accuracy"} <= before.keys()
    after = json.loads((place / "after" / "report.json").read_text())["sources"]["all"]
    assert {"pass@8", "maj@8"} <= after.keys()
    assert (place / "qwen-grpo" / "evaluations" / "rl-2" / "report.json").exists()
    prompt = read_lines(place / "before" / "samples.jsonl")[0]["prompt"]
    assert prompt.startswith("<|im_start|>user\nSolve the problem below.")
    assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert [line["sample"] for line in read_lines(place / "answers.jsonl")] == [0, 1, 2, 3]
    names = {file.name for file in (place / "qwen-gsm8k").iterdir()}
    assert {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
        "generation_config.json",
    } <= names
    assert {file.name for file in (place / "qwen-gsm8k-adapter").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }


def test_the_experiment_is_a_config(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main(["explain", "qwen_gsm8k.gin"]) == 0
    assert "ref_logps" in capsys.readouterr().out

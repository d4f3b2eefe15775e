"""A policy that is opened in Python: the same texts and numbers as those of the commands `generate` and `eval`."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import threading
import warnings
from pathlib import Path

import jax
import pytest
from tests.core.training.tiny import TINY

import dovetail
from dovetail.cli import main
from dovetail.errors import ConfigError, DataError, DovetailWarning, RunError
from dovetail.protocols import DoesNotFit
from dovetail.run.files import read_lines

ROOT = Path(__file__).parents[2]
QUICK = (*TINY, "sft.steps=1", "train.steps=1", "eval.examples=2", "eval.every=9")
PROMPTS = ["1 + 2=", "3 + 4=", "5 + 6="]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "tiny.gin").write_text("")
    return dovetail.train(folder / "tiny.gin", folder / "run", QUICK)


@pytest.fixture(scope="module")
def policy(run):
    return dovetail.open_policy(run)


def written(run, path: Path, prompts, *more: str) -> dict[tuple[int, int], dict]:
    """What `dovetail generate` writes, by prompt and sample."""
    file = path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    arguments = ["--run", str(run.folder), "--prompts", str(file), "--out", str(path / "out.jsonl"), *more]
    assert main(["generate", *arguments]) == 0
    return {(line["index"], line["sample"]): line for line in read_lines(path / "out.jsonl")}


def test_the_texts_are_those_of_the_command(run, policy, tmp_path):
    lines = written(run, tmp_path, PROMPTS, "-n", "2", "--set", "sampling.temperature=0.7", "--set", "run.seed=5")
    texts = policy.generate(PROMPTS, n=2, temperature=0.7, seed=5)
    assert texts == [[lines[index, sample]["completion"] for sample in range(2)] for index in range(3)]
    assert policy.completions(PROMPTS, 2, temperature=0.7, seed=5, batch_size=1) == list(lines.values())
    assert policy.generate(PROMPTS, n=2, temperature=0.7, seed=6) != texts


def test_a_preset_gives_way_to_what_is_set_with_it(policy):
    greedy = policy.generate(PROMPTS[:1], n=2, preset="greedy")
    assert greedy[0][0] == greedy[0][1]
    assert policy.generate(PROMPTS, n=2, preset="greedy", temperature=1.0) == policy.generate(PROMPTS, n=2)


def test_calls_leave_the_process_as_it_was(run, tmp_path):
    def state():
        hooks = sys.excepthook, sys.unraisablehook, threading.excepthook, warnings.formatwarning, warnings.showwarning
        handlers = [signal.getsignal(number) for number in sorted(signal.valid_signals())]
        loggers = [logging.getLogger(name) for name in (None, "absl", "asyncio", "jax", "orbax", "dovetail")]
        logged = [(each.level, list(each.handlers), list(each.filters)) for each in loggers]
        return hooks, handlers, logged, dict(jax.config.values), dict(os.environ), Path.cwd()

    config = dovetail.load(run.folder.parent / "tiny.gin", [*QUICK, "sft.steps=0", "eval.every=None"])
    before = state()
    dovetail.train(config, tmp_path / "run")
    policy = dovetail.open_policy(tmp_path / "run")
    policy.generate(PROMPTS)
    policy.evaluate(examples=2)
    assert state() == before


def test_a_prompt_that_is_left_out_has_no_texts(run):
    with pytest.warns(DovetailWarning, match="1 of 2 eval prompts exceed train.max_prompt_tokens = 12"):
        found = dovetail.open_policy(run, settings={"train.long_prompts": "filter"}).generate(["1 + 2=" * 9, "1="])
    assert [len(texts) for texts in found] == [0, 1]


def test_the_report_is_that_of_the_command(run, policy, tmp_path, capsys):
    arguments = ["--run", str(run.folder), "--examples", "4", "-n", "2", "--sampling", "liberal"]
    arguments += ["--set", "eval.pass_at=(1, 2)", "--out", str(tmp_path / "command")]
    assert main(["eval", *arguments]) == 0
    report = policy.evaluate(examples=4, samples=2, preset="liberal", pass_at=(1, 2))
    assert capsys.readouterr().out.startswith(str(report))
    report.write(tmp_path / "python")
    for file in ("report.json", "samples.jsonl", "config.gin"):
        assert (tmp_path / "python" / file).read_text() == (tmp_path / "command" / file).read_text(), file
    assert report.metrics["pass@2"] == report.figures["all"]["pass@2"].value


def test_examples_at_hand_are_evaluated_as_those_of_a_task(policy):
    report = policy.evaluate(samples=1)
    rows = [{"prompt": record["prompt"], "answer": record["expected"]} for record in report.records[:6]]
    own = policy.evaluate(rows, samples=1)
    assert [record["completion"] for record in own.records[:6]] == [r["completion"] for r in report.records[:6]]
    assert own.figures["given"]["reward_mean"].n == 6
    assert own.config.choice("eval.task").component.label == "task.arithmetic", "a file cannot hold the examples"


def test_a_step_and_a_config_are_opened(run, tmp_path):
    assert dovetail.open_policy(run.folder, checkpoint=0).weights == "sft-1"
    assert repr(dovetail.open_policy(run)) == f"OpenPolicy(rl-1 of {run.folder})"
    start = dovetail.open_policy(config=run.folder.parent / "tiny.gin", settings=QUICK)
    assert start.weights == "start"
    assert start.config.train.max_prompt_tokens == 12


def test_the_example_of_the_docs_runs(run, tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "api.md").read_text(), re.S)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").symlink_to(run.folder)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "api.md", "exec"), {})
    assert capsys.readouterr().out.startswith("rl-1 2 4\nall (50 prompts)")


MISTAKES = {
    "one prompt": (lambda policy: policy.generate("1="), DataError, r"prompts is one prompt, '1='; give a list"),
    "no prompt": (lambda policy: policy.generate([]), DataError, "prompts is empty; give at least one"),
    "a conversation alone": (
        lambda policy: policy.generate([{"role": "user", "content": "1="}]),
        DataError,
        r"prompts\[0\] has no 'prompt', only 'role', 'content'; a conversation is a list of messages",
    ),
    "a number": (lambda policy: policy.generate(["1=", 2]), DataError, r"prompts\[1\] is 2; a prompt is a text"),
    "a message": (
        lambda policy: policy.generate([[{"role": "user", "text": "1="}]]),
        DataError,
        r"prompts\[0\] has the message \{'role': 'user', 'text': '1='\}; write",
    ),
    "too long": (lambda policy: policy.generate(["1 + 2=" * 9]), DataError, "Raise train.max_prompt_tokens to"),
    "no sample": (lambda policy: policy.generate(["1="], n=0), ConfigError, "n 0: it must be at least 1"),
    "a setting": (lambda policy: policy.generate(["1="], temprature=1.0), ConfigError, "Did you mean .*temperature"),
    "a value": (lambda policy: policy.generate(["1="], temperature=-1.0), ConfigError, "temperature"),
    "a task": (lambda policy: policy.evaluate("arithmetics"), ConfigError, "Did you mean 'arithmetic'"),
    "a column": (
        lambda policy: policy.evaluate([{"prompt": "1="}]),
        dovetail.DovetailError,
        "reads the column 'answer', which task given does not have",
    ),
    "a preset": (lambda policy: policy.evaluate(preset="standard"), ConfigError, "samples=NUMBER in Python"),
}


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named(policy, call, error, message):
    with pytest.raises(error, match=message) as raised:
        call(policy)
    assert "\n" not in str(raised.value)


def test_what_is_opened_wrongly_is_named(run):
    with pytest.raises(RunError, match=r"is not the folder of a run .*Did you mean 'run'\?"):
        dovetail.open_policy(run.folder.parent / "rnu")
    with pytest.raises(RunError, match=r"has no checkpoint '7'. There: newest, best, 0, 1"):
        dovetail.open_policy(run, checkpoint=7)
    with pytest.raises(ConfigError, match=r"checkpoint = 'best' is of a run: give open_policy its folder too"):
        dovetail.open_policy(config="quickstart", checkpoint="best")
    with pytest.raises(ConfigError, match=r"give open_policy the folder of a run, or config=NAME"):
        dovetail.open_policy()


def test_a_batch_without_room_is_refused(run):
    small = dovetail.open_policy(run, settings={"memory.limit": 0.63})
    with pytest.raises(DoesNotFit, match="the policy takes .* with one of these it fits: eval.batch_size = "):
        small.generate(PROMPTS * 200, n=64, batch_size=600)

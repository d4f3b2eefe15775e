"""The code blocks of the page of that name form a package that conforms, trains, and resumes after being killed.

The core knows none of its names.
"""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.core.train.cut_off import cut_off
from tests.core.train.test_loop import assert_same_parameters
from tests.distribution import write_distribution

from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import DataError, PlanError
from dovetail.registry import _discovered, current
from dovetail.run.summary import read_lines, series
from dovetail.shipped import find
from dovetail.train.loop import train
from dovetail_kit.conformance.check import applicable
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.verdict import judge, report

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "what_a_plugin_can_do.md").read_text()
FILES = {
    name: text
    for block in re.findall(r"```(?:python|gin)\n(.*?)```", PAGE, re.S)
    for name, text in re.findall(r"\A# (\S+)\n(.*)", block, re.S)
}
OWNER = "acme-rl"
SMALLER = (
    "train.steps=4",
    "train.prompts=4",
    "train.group_size=4",
    "sft.steps=2",
    "sft.batch_size=8",
    "model.decoder.width=16",
    "model.decoder.heads=2",
    "model.decoder.kv_heads=1",
    "eval.examples=4",
    "eval.every=4",
    "run.checkpoint_every=2",
    "run.sinks=()",
)


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """Install the page's package on the path as pip would."""
    site = tmp_path_factory.mktemp("site")
    write_distribution(site, OWNER, FILES, {"dovetail": {"acme_rl": "acme_rl"}})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        _discovered.cache_clear()
        yield site
    _discovered.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_rl"]:
        del sys.modules[name]


def own():
    return [component for component in current().components() if component.origin.distribution == OWNER]


def recipe(*overrides):
    return load(find("acme-rl/recipe"), [*SMALLER, *overrides])


def test_every_block_of_the_page_is_part_of_the_package():
    blocks = re.findall(r"```(?:python|gin)\n", PAGE)
    assert len(blocks) == len(FILES) == 10
    assert current().problems == []
    registered = re.findall(r'register\("(\w+)", "(\w+)"', FILES["acme_rl/__init__.py"])
    assert {(each.kind, each.name) for each in own()} == set(registered)


def test_it_is_formatted_and_linted(installed):
    settings = ["--line-length", "120", "--target-version", "py311"]
    for command in (
        ["format", "--diff"],
        ["check", "--select", "E,F,W,I,UP,B,D1", "--ignore", "F722,F821,UP037,D105,D107"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *settings, "--isolated", str(installed / "acme_rl")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_its_examples_run():
    tried = 0
    for name in FILES:
        if name.endswith(".py"):
            module = importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
            found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
            assert found.failed == 0, name
            tried += found.attempted
    assert tried >= 5


@pytest.mark.slow
def test_its_components_conform():
    for component in own():
        subject = Subject(component)
        for check in applicable(component):
            if not check.slow:
                verdict = judge(check, subject)
                assert verdict.outcome in ("passed", "skipped"), report(check, subject, verdict)


def test_the_plan_knows_who_provides_and_who_reads():
    plan = recipe().plan
    entries = {entry.field: entry for entry in plan.entries}
    assert entries["suspicion"].provider == "train.detector = acme-rl/stutter"
    assert entries["suspicion"].readers == ["train.advantage = acme-rl/doubting", "train.policy_loss = acme-rl/wary"]
    assert entries["grade"].provider == "column of the task"
    assert entries["grade"].readers == ["train.loss_terms = acme-rl/entropy_by_grade"]
    assert "moored" in plan.roles
    both = {entry.field: entry for entry in recipe("train.advantage=by_grade").plan.entries}
    assert both["grade"].readers[0] == "train.advantage = acme-rl/by_grade"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.detector=None", "acme-rl/doubting .* reads the field 'suspicion', which nobody provides"),
        ("train.task=arithmetic", "acme-rl/entropy_by_grade .* reads the field 'grade', which nobody provides"),
        ("train.correction=()", "train.replay = last_best learns from completions of earlier policies"),
    ],
)
def test_what_does_not_go_together_is_refused_when_the_config_is_read(override, message):
    with pytest.raises(PlanError, match=message):
        recipe(override, "loss_term.drift.coef=0", *(["train.loss_terms=()"] if "correction" in override else []))


def test_a_column_that_is_not_a_number_stops_the_run_with_its_prompt(tmp_path, monkeypatch):
    grades = importlib.import_module("acme_rl.grades")
    example = grades.GradedSums._example
    monkeypatch.setattr(grades.GradedSums, "_example", lambda *given: example(*given) | {"grade": "hard"})
    with pytest.raises(DataError, match="the column 'grade' is read as a field, and is 'hard' where the prompt is '"):
        train(recipe("sft.steps=0"), tmp_path)


@pytest.fixture(scope="module")
def finished(installed, tmp_path_factory) -> Path:
    """A run of the package's recipe, chosen by name."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    sets = [word for override in SMALLER for word in ("--set", override)]
    assert main(["train", "acme-rl/recipe", "--folder", str(folder), *sets]) == 0
    return folder


def test_all_of_it_is_called(finished):
    lines = [line for line in read_lines(finished / "metrics.jsonl") if "reward/mean" in line]
    assert len(lines) == 4
    for name in (
        "detector/share",
        "loss_term/drift/mean",
        "loss_term/entropy_by_grade/mean",
        "loss_term/stay_near/mean",
        "reward/closest_first",
        "reward/surprise",
        "process_reward/toll",
        "curriculum/rounds",
        "replay/score",
        "correction/weight_mean",
    ):
        assert all(np.isfinite(line[name]) for line in lines), name
    assert lines[-1]["loss_term/stay_near/mean"] > 0, "the policy has left its mooring"
    assert lines[0]["loss_term/stay_near/mean"] == pytest.approx(0, abs=1e-8)
    assert any(line["process_reward/toll"] < 0 for line in lines)
    assert "train.detector = 'acme-rl/stutter'" in (finished / "config.gin").read_text()


def test_its_observer_has_its_settings_and_its_command_reads_the_run(finished, capsys):
    low = [step for step, reward in series(finished, "reward/mean") if reward < 0.5]
    written = [line.partition(":")[0] for line in (finished / "alerts.txt").read_text().splitlines()]
    assert low
    assert written == [f"step {step}" for step in low]
    assert main(["podium", str(finished)]) == 0
    assert capsys.readouterr().out == f"{series(finished, 'reward/mean')[-1][1]:.3f} {finished}\n"


def test_a_run_that_stops_goes_on_bit_for_bit(finished, tmp_path):
    with cut_off(3):
        train(recipe(), tmp_path / "run")
    train(recipe(), tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()
    assert_same_parameters(tmp_path / "run", finished)


@pytest.mark.slow
def test_an_estimator_learns_from_a_column(tmp_path):
    last = train(recipe("train.advantage=by_grade", "train.steps=2", "sft.steps=0"), tmp_path)
    assert last["optimizer/grad_norm"] > 0


def test_the_core_mentions_nothing_of_it():
    hooks = FILES["acme_rl/__init__.py"]
    words = {each.name for each in own()} | {each.target.rpartition(":")[2] for each in own()}
    words |= {"detector", "suspicion", "grade", "moored", "alerts", "podium"}
    assert all(word in PAGE for word in words)
    assert {kind.name for kind in current().kinds.values() if kind.origin.distribution == OWNER} <= words
    assert re.findall(r'register_section\("(\w+)"', hooks) == ["alerts"]
    known = re.compile(rf"\b({'|'.join(sorted(words))})\b")
    for file in sorted((ROOT / "core").rglob("*.py")):
        found = known.search(file.read_text())
        assert found is None, f"{file} mentions {found[0] if found else ''}"

"""The code blocks of the page of that name form a package that conforms, trains, and resumes after being killed.

The core knows none of its names.
"""

import ast
import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.training.cut_off import cut_off
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY
from tests.distribution import write_distribution

import dovetail
from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import DataError, PlanError
from dovetail.registry import _discovered, current
from dovetail.run.files import read_lines
from dovetail.run.summary import series
from dovetail.shipped import find
from dovetail.training.loop import train
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
    assert len(blocks) == len(FILES) == 12
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
        (
            "train.detector=None",
            "acme-rl/doubting .* reads the field 'suspicion', which nobody provides: the kind 'detector' writes it; set"
            r" train\.detector to one of .*stutter.* \[.*:\d+\]",
        ),
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
    with pytest.raises(DataError, match="reads the column 'grade' as a field, and it is 'hard' where the prompt is '"):
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


def forward_kl(logits, teacher_logits):
    """KL(π_T || π) at each position."""
    teacher = jax.nn.log_softmax(teacher_logits)
    return jnp.sum(jnp.exp(teacher) * (teacher - jax.nn.log_softmax(logits)), axis=-1)


def cover(forward_kl, mask):
    """The divergence from a teacher over the whole vocabulary."""
    return jnp.where(mask, forward_kl, 0.0)


def follow(logps, teacher_logps, mask):
    """Half the squared log-ratio to a teacher, for the sampled tokens."""
    return jnp.where(mask, 0.5 * jnp.square(logps - teacher_logps), 0.0)


def imitate(demo_logps, demo_mask):
    """Negative log-likelihood of demonstrations."""
    return jnp.where(demo_mask, -demo_logps, 0.0)


@dovetail.declares(whole_groups=True)
def rank(logps, ref_logps, scores, group_ids, mask):
    """-log σ(Δ_w - Δ_l) summed over the pairs of a prompt's completions with different scores."""
    moved = jnp.sum(jnp.where(mask, logps - ref_logps, 0.0), axis=1)
    better = (group_ids[:, None] == group_ids[None, :]) & (scores[:, None] > scores[None, :])
    losses = jnp.where(better, -jax.nn.log_sigmoid(moved[:, None] - moved[None, :]), 0.0)
    return jnp.where(mask, (jnp.sum(losses, axis=0) + jnp.sum(losses, axis=1))[:, None], 0.0)


@pytest.mark.slow
def test_terms_read_teachers_demonstrations_and_ranked_completions(tmp_path):
    """Terms of somebody else's get what the shipped ones get; here they are the whole loss."""
    dovetail.register("field", "forward_kl", forward_kl)
    for term in (cover, follow, imitate, rank):
        dovetail.register("loss_term", term.__name__, term)
    only_terms = ["train.policy_loss=zero", "train.loss_terms=['cover', 'follow', 'imitate', 'rank']"]
    # a teacher with weights of its own, and completions of one prompt with different rewards
    others = ["roles.teacher=frozen", "teacher.model=decoder", "train.rewards=['match_format_approximately']"]
    last = train(load(None, [*TINY, *only_terms, *others, "train.steps=1", "eval.every=None"]), tmp_path)
    for name in ("cover", "follow", "imitate", "rank"):
        assert last[f"loss_term/{name}/mean"] > 0, name
    assert last["optimizer/grad_norm"] > 0


def test_a_model_of_its_own_is_trained_and_exported(tmp_path, capsys):
    sets = [
        word
        for override in (*SMALLER[:5], *SMALLER[8:], "train.model=leaky", "train.steps=2", "eval.every=None")
        for word in ("--set", override)
    ]
    run, out = tmp_path / "run", tmp_path / "out"
    assert main(["train", "acme-rl/recipe", "--folder", str(run), *sets]) == 0
    assert all(rate > 0 for _, rate in series(run, "optimizer/update_norm"))
    assert main(["export", str(run), "--out", str(out)]) == 0
    with np.load(out / "model.npz") as weights:
        assert sorted(weights) == ["embedding", "keep", "write"]
    capsys.readouterr()
    assert main(["export", str(run), "--out", str(tmp_path / "other"), "--adapter"]) == 1
    assert "a model 'leaky' is written as a whole and in float32" in capsys.readouterr().err


THIS = "tests/test_what_a_plugin_can_do.py"
TESTED = {
    "a new kind of component, called in the step": (THIS, "test_all_of_it_is_called"),
    "another term in the loss": (THIS, "test_all_of_it_is_called"),
    "to learn from a teacher's log-probabilities": (THIS, "test_terms_read_teachers_demonstrations_and_ranked_completions"),
    "to learn from a teacher's whole distribution": (THIS, "test_terms_read_teachers_demonstrations_and_ranked_completions"),
    "to imitate demonstrations during RL": (THIS, "test_terms_read_teachers_demonstrations_and_ranked_completions"),
    "to rank the completions of a prompt": (THIS, "test_terms_read_teachers_demonstrations_and_ranked_completions"),
    "an estimator or a loss that reads a dataset column": (THIS, "test_an_estimator_learns_from_a_column"),
    "an estimator that remembers earlier steps": ("tests/advantage/advantage/test_rae.py", "test_a_run_remembers_and_resumes_bit_for_bit"),
    "to compare the completions of a prompt": (THIS, "test_all_of_it_is_called"),
    "credit for single tokens": (THIS, "test_all_of_it_is_called"),
    "to choose prompts by the scores so far": (THIS, "test_all_of_it_is_called"),
    "to learn from earlier completions again": (THIS, "test_all_of_it_is_called"),
    "another model beside the policy": (THIS, "test_all_of_it_is_called"),
    "an architecture of your own": (THIS, "test_a_model_of_its_own_is_trained_and_exported"),
    "another way to fit a step into memory": ("tests/kit/test_scaffold.py", "test_every_package_passes_its_tests_and_conforms"),
    "settings and observers": (THIS, "test_its_observer_has_its_settings_and_its_command_reads_the_run"),
    "commands, recipes": (THIS, "test_its_observer_has_its_settings_and_its_command_reads_the_run"),
    "options and contexts of `dovetail train`": ("tests/core/cli/test_plugin_commands.py", "test_a_plugin_adds_an_option_to_training_and_surrounds_it"),
    "another evaluation, warm start, or place of the sampler's program": ("tests/core/training/test_channels.py", "test_what_another_plugin_answers_replaces_ours"),
}  # fmt: skip
"""The test of each row of the page's first table."""


def test_every_row_of_the_table_has_a_test():
    table = PAGE.partition("| you want |")[2].partition("\n\n")[0]
    assert [line.split(" | ")[0].strip("| ") for line in table.splitlines()[2:]] == list(TESTED)
    for path, name in TESTED.values():
        tests = ast.parse((ROOT / path).read_text()).body
        assert name in {test.name for test in tests if isinstance(test, ast.FunctionDef)}, path


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

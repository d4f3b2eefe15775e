"""The atlas, in miniature: two arms, two seeds, a few steps; and which components it compares."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.train.tiny import TINY

from dovetail.config import load
from dovetail.registry import _discovered
from dovetail.registry.one_file import FILES

ATLAS = Path(__file__).parents[2] / "benchmarks" / "atlas" / "atlas.py"


def module():
    spec = importlib.util.spec_from_file_location("atlas", ATLAS)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_it_compares_what_needs_neither_a_critic_nor_several_turns():
    atlas = module()
    sums = atlas.config_of("sums")
    names, left_out = atlas.candidates(sums, atlas.FAMILIES["advantage"], ())
    assert next(iter(names)) == "grpo"
    assert {"rloo", "reinforce_plus_plus"} <= set(names)
    assert left_out["gae"] == "it needs a critic"
    losses, _ = atlas.candidates(sums, atlas.FAMILIES["policy_loss"], ())
    assert {"ppo", "gspo", "cispo"} <= set(losses)


@pytest.fixture
def no_plugin_is_left(monkeypatch):
    monkeypatch.setenv(FILES, "")
    yield
    _discovered.cache_clear()
    for name in ("uncorrected", "counting"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("no_plugin_is_left")
def test_corrections_are_compared_with_none_where_the_sampler_is_behind():
    atlas = module()
    names, left_out = atlas.candidates(atlas.config_of("sums"), atlas.FAMILIES["correction"], ())
    assert next(iter(names)) == "uncorrected"
    assert {"tis_token", "tis_sequence", "icepop"} <= set(names)
    assert not left_out


def test_sampling_ahead_is_compared_with_sampling_in_turn():
    atlas = module()
    arms, _ = atlas.candidates(atlas.config_of("sums"), atlas.FAMILIES["staleness_tis_token"], ())
    assert arms == {f"k{k}": f"train.staleness={k}" for k in (0, 1, 2, 4)}


@pytest.mark.usefixtures("no_plugin_is_left")
def test_the_second_task_has_sums_of_its_own_in_each_split_and_completions_of_many_lengths():
    atlas = module()
    task = load(atlas.config_of("counting"), ()).choice("train.task").bind()
    columns = {split: [task.examples(split)[i]["question"] for i in range(500)] for split in ("train", "eval", "sft")}
    assert not set(columns["train"]) & set(columns["eval"])
    assert not set(columns["sft"]) & set(columns["eval"])
    said = [task.examples("sft")[i] for i in range(500)]
    right = [each for each in said if each["completion"].endswith(f" <answer>{each['answer']}</answer>")]
    assert len(right) / 500 == pytest.approx(1 - 0.7, abs=0.07)
    assert {len(each["completion"].split()[0]) for each in right} == set(range(1, 17))
    assert all(each["completion"].split()[0][-1] == each["answer"][-1] for each in right)


def test_a_family_has_as_many_seeds_as_a_verdict_needs():
    assert module().seeds_for(1, 2) == 6
    assert module().seeds_for(23, 8) == 10


@pytest.mark.slow
def test_a_miniature(tmp_path):
    sets = [f"--set={each}" for each in (*TINY, "train.mini_batch_size=4")]
    small = [
        "--families",
        "policy_loss",
        "--only",
        "gspo",
        "--seeds",
        "2",
        "--exactly",
        "--jobs",
        "1",
        "--tasks",
        "sums",
    ]
    command = [sys.executable, str(ATLAS), "--folder", str(tmp_path), *small, *sets]
    for _ in range(2):  # the second time, it has nothing left to do
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    assert "sums, policy_loss: 1 against grpo, 2 seeds" in done.stdout
    assert "| `gspo` | " in (tmp_path / "atlas.md").read_text()
    page = (tmp_path / "sums" / "policy_loss" / "ab.html").read_text()
    assert "Learning curves" in page
    assert ">gspo<" in (tmp_path / "sums" / "policy_loss" / "atlas.svg").read_text()
    assert page.index("gspo") < page.index("<svg"), "the verdict comes first"

"""The atlas, in miniature: two arms, two seeds, a few steps; and which components it compares."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.train.tiny import TINY

from dovetail.registry import _discovered
from dovetail.registry.one_file import FILES

ATLAS = Path(__file__).parents[2] / "benchmarks" / "atlas.py"


def module():
    spec = importlib.util.spec_from_file_location("atlas", ATLAS)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_it_compares_what_needs_neither_a_critic_nor_several_turns():
    atlas = module()
    names, left_out = atlas.candidates(atlas.FAMILIES["advantage"], ())
    assert next(iter(names)) == "grpo"
    assert {"rloo", "reinforce_plus_plus"} <= set(names)
    assert left_out["gae"] == "it needs a critic"
    losses, _ = atlas.candidates(atlas.FAMILIES["policy_loss"], ())
    assert {"ppo", "gspo", "cispo"} <= set(losses)


@pytest.fixture
def no_plugin_is_left(monkeypatch):
    monkeypatch.setenv(FILES, "")
    yield
    _discovered.cache_clear()
    sys.modules.pop("uncorrected", None)


@pytest.mark.usefixtures("no_plugin_is_left")
def test_corrections_are_compared_with_none_where_the_sampler_is_behind():
    names, left_out = module().candidates(module().FAMILIES["correction"], ())
    assert next(iter(names)) == "uncorrected"
    assert {"tis_token", "tis_sequence", "icepop"} <= set(names)
    assert not left_out


def test_sampling_ahead_is_compared_with_sampling_in_turn():
    arms, _ = module().candidates(module().FAMILIES["staleness_tis_token"], ())
    assert arms == {f"k{k}": f"train.staleness={k}" for k in (0, 1, 2, 4)}


def test_a_family_has_as_many_seeds_as_a_verdict_needs():
    assert module().seeds_for(1, 2) == 6
    assert module().seeds_for(23, 8) == 10


@pytest.mark.slow
def test_a_miniature(tmp_path):
    sets = [f"--set={each}" for each in (*TINY, "train.mini_batch_size=4")]
    small = ["--families", "policy_loss", "--only", "gspo", "--seeds", "2", "--exactly", "--jobs", "1"]
    command = [sys.executable, str(ATLAS), "--folder", str(tmp_path), *small, *sets]
    for _ in range(2):  # the second time, it has nothing left to do
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    assert "policy_loss: 1 against grpo, 2 seeds" in done.stdout
    assert "| `gspo` | " in (tmp_path / "atlas.md").read_text()
    page = (tmp_path / "policy_loss" / "ab.html").read_text()
    assert "Learning curves" in page
    assert page.index("gspo") < page.index("<svg"), "the verdict comes first"

"""The atlas, in miniature: two arms, two seeds, a few steps; and which components it compares."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.core.training.tiny import TINY
from tests.lab.ab import stub
from tests.lab.report.test_pages import read

from dovetail.config import load
from dovetail.registry import _discovered, current
from dovetail.registry.one_file import FILES
from dovetail.training.loop import train

ATLAS = Path(__file__).parents[2] / "benchmarks" / "atlas" / "atlas.py"


def module():
    """The benchmark, which imports what stands beside it."""
    if str(ATLAS.parent) not in sys.path:
        sys.path.append(str(ATLAS.parent))
    spec = importlib.util.spec_from_file_location("atlas", ATLAS)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def no_plugin_is_left(monkeypatch):
    monkeypatch.setenv(FILES, "")
    yield
    _discovered.cache_clear()
    for name in ("uncorrected", "float8", "counting"):
        sys.modules.pop(name, None)


CRITIC, TURNS, CORRECTION = "it needs a critic", "an agent loop with turns provides", "a correction provides"
LEFT_OUT = {
    "policy_loss": {"gspo_turn": TURNS},
    "advantage": {
        **dict.fromkeys(("bi_level_gae", "decoupled_gae", "gae", "length_adaptive_gae", "turn_gae"), CRITIC),
        **dict.fromkeys(("gigpo", "mt_grpo", "turn_returns", "turn_rloo"), TURNS),
        **dict.fromkeys(("optimal_token_baseline_corrected", "tir_optimal_token_baseline_corrected"), CORRECTION),
    },
    "loss_agg": {},
    "correction": {},
    "mismatch": {},
}
"""What each family leaves out, with a part of the reason."""


@pytest.mark.usefixtures("no_plugin_is_left")
@pytest.mark.parametrize("task", ["sums", "counting"])
@pytest.mark.parametrize("family", LEFT_OUT)
def test_it_compares_everything_but_what_needs_a_critic_several_turns_or_a_correction(family, task):
    atlas = module()
    compared = atlas.FAMILIES[family]
    arms, left_out = atlas.candidates(atlas.config_of(task), compared, ())
    own = {each.name for each in current().components(compared.kind) if each.origin.distribution == "dovetail"}
    assert own == (arms.keys() | left_out.keys()) - {"uncorrected"}
    assert next(iter(arms)) == compared.control
    assert left_out.keys() == LEFT_OUT[family].keys()
    for name, why in LEFT_OUT[family].items():
        assert why in left_out[name]


def test_an_aggregation_that_needs_a_normaliser_has_the_length_limit():
    atlas = module()
    arms, _ = atlas.candidates(atlas.config_of("sums"), atlas.FAMILIES["loss_agg"], ())
    wanted = ["train.loss_agg='sequence_mean_token_scale'", "loss_agg.sequence_mean_token_scale.normalizer=6"]
    assert arms["sequence_mean_token_scale"] == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", ["optimal_token_baseline_corrected", "tir_optimal_token_baseline_corrected"])
def test_baselines_that_need_weights_train_with_a_correction(name, tmp_path):
    sets = [*TINY, "train.mini_batch_size=4", "train.correction='tis_token'", f"train.advantage={name!r}"]
    train(load(ATLAS.with_name("sums.gin"), sets), tmp_path / "run")
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["policy_loss/loss"] for line in steps if "policy_loss/loss" in line]
    assert losses
    assert np.isfinite(losses).all()


@pytest.mark.usefixtures("no_plugin_is_left")
def test_corrections_are_compared_with_none_where_the_sampler_is_behind():
    atlas = module()
    names, _ = atlas.candidates(atlas.config_of("sums"), atlas.FAMILIES["correction"], ())
    assert next(iter(names)) == "uncorrected"
    assert {"tis_token", "tis_sequence", "icepop"} <= set(names)


@pytest.mark.usefixtures("no_plugin_is_left")
def test_corrections_are_compared_with_none_where_the_sampler_has_coarser_matrices():
    atlas = module()
    atlas.candidates(atlas.config_of("sums"), atlas.FAMILIES["mismatch"], ())
    engine = current().get("rollout", "float8").load()
    matrix, vector = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3) ** 3, np.linspace(0, 1, 5, dtype=np.float32)
    made = sys.modules[engine.__module__].rounded({"matrix": matrix, "vector": vector})
    np.testing.assert_array_equal(made["vector"], vector)
    assert not np.array_equal(made["matrix"], matrix)
    np.testing.assert_allclose(made["matrix"], matrix, rtol=2.0**-4, atol=2.0**-9 / 448)


def test_sampling_ahead_is_compared_with_sampling_in_turn():
    atlas = module()
    arms, _ = atlas.candidates(atlas.config_of("sums"), atlas.FAMILIES["staleness_tis_token"], ())
    assert arms == {f"k{k}": [f"train.staleness={k}"] for k in (0, 1, 2, 4)}


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
def test_a_page_has_the_verdicts_the_forest_plot_and_the_curves_of_every_test(tmp_path, monkeypatch):
    stub.without_processes(tmp_path, monkeypatch)
    atlas = module()
    stub.ab(*stub.ARMS, *stub.QUICK, "--folder", "sums/policy_loss")
    stub.ab(*stub.ARMS, *stub.QUICK, "--metric", "reward/mean", "--folder", "counting/loss_agg", "--repeat")
    why = dict.fromkeys(("gspo_turn", "gspo_late"), "it reads 'turns'")
    (tmp_path / "sums" / "policy_loss" / "left_out.json").write_text(json.dumps(why))
    page_file = tmp_path / "atlas.html"
    page_file.write_text(atlas.render(tmp_path, atlas.FAMILIES))
    page = read(page_file)
    assert '<a href="#sums/policy_loss">sums, policy_loss</a>: 1 better' in page
    first, second = page.index('<div id="counting/loss_agg">'), page.index('<div id="sums/policy_loss">')
    assert first < second
    sums = page[second:]
    for shown in ("Better.", "up is better than base", "differences with intervals", ">up</b>", 'href="sums/policy'):
        assert shown in sums
    assert "Left out: gspo_turn, gspo_late: it reads &#x27;turns&#x27;" in sums
    assert "Not confirmatory" in page[first:second], "the same seeds were compared twice"


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
    assert read(tmp_path / "atlas.html").index('href="sums/policy_loss/ab.html"') > 0
    page = (tmp_path / "sums" / "policy_loss" / "ab.html").read_text()
    assert "Learning curves" in page
    assert ">gspo<" in (tmp_path / "sums" / "policy_loss" / "atlas.svg").read_text()
    assert page.index("gspo") < page.index("<svg"), "the verdict comes first"

"""The tables of a sweep: the value of a setting, and the order of the settings."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path

from tests.lab.sweep.stub import plan

from dovetail_lab.report.sweep import render
from dovetail_lab.sweep import Store, Trial
from dovetail_lab.sweep.export import export
from dovetail_lab.sweep.tables import alike_text, settings_table, table_text

ENDED_EARLY, WHOLE = 0.1, 0.2


def swept(folder: Path, values: Mapping[float, list[list[float]]], pruned: Mapping[float, int]) -> Store:
    """Return a finished sweep, given the curves of each setting by seed, and how many last seeds were stopped early."""
    seeds = len(next(iter(values.values())))
    planned, about = plan(*values, seeds=tuple(range(seeds)))
    store = Store.create(folder, planned, about)
    for trial in store.trials:
        rate = float(trial.values["train.lr"])
        lines = [
            json.dumps({"phase": "rl", "step": 25 * (index + 1), "score": value}) + "\n"
            for index, value in enumerate(values[rate][trial.seed])
        ]
        (store.folder(trial) / "metrics.jsonl").write_text("".join(lines))
        (store.folder(trial) / "run.json").write_text(json.dumps({"run_id": trial.id}))
        store.settle(trial, "pruned" if trial.seed >= seeds - pruned.get(rate, 0) else "done")
    return store


def test_a_seed_that_was_stopped_early_does_not_enter_the_mean_at_its_early_value(tmp_path):
    curves = {ENDED_EARLY: [[0.2, 0.61], [0.16], [0.17]], WHOLE: [[0.2, 0.5], [0.2, 0.51], [0.2, 0.52]]}
    store = swept(tmp_path / "s", curves, pruned={ENDED_EARLY: 2})
    first, second = settings_table(store, "score", "max")
    assert (first.mean, first.pruned, len(first.last)) == (0.61, 2, 1)
    assert second.pruned == 0
    assert "1/3, 2 stopped early" in table_text(store, "score", "max")
    page = render(store, "score", "max")
    assert "2 of its 3 seeds were stopped early and are not in the mean, which is that of the better ones" in page


def test_a_setting_of_which_no_seed_was_left_to_end_has_no_mean_and_stands_last(tmp_path):
    curves = {ENDED_EARLY: [[0.9], [0.8]], WHOLE: [[0.2, 0.5], [0.2, 0.4]]}
    store = swept(tmp_path / "s", curves, pruned={ENDED_EARLY: 2})
    first, last = settings_table(store, "score", "max")
    assert first.mean == 0.45
    assert (last.mean, last.best) == (None, 0.9)


def test_a_sweep_whose_trials_were_all_stopped_has_ended(tmp_path):
    curves = {ENDED_EARLY: [[0.9], [0.8]], WHOLE: [[0.2, 0.5], [0.2, 0.4]]}
    page = render(swept(tmp_path / "s", curves, pruned={ENDED_EARLY: 2, WHOLE: 2}), "score", "max")
    assert (
        "No trial has run to its end, so no setting has a value. The best score on the way was 0.9, of lr=0.1." in page
    )
    assert "yet" not in page.partition("</div>")[0]


def test_a_value_that_is_not_finite_makes_no_setting_the_best(tmp_path):
    curves = {ENDED_EARLY: [[0.2, float("inf")], [0.2, 0.3]], WHOLE: [[0.2, 0.5], [0.2, 0.4]]}
    first, last = settings_table(swept(tmp_path / "s", curves, pruned={}), "score", "max")
    assert (first.mean, last.mean, last.best) == (0.45, 0.3, 0.3)


def test_exported_values_are_numbers_and_not_texts(tmp_path):
    store = swept(tmp_path / "s", {1e-05: [[0.1]], WHOLE: [[0.2]]}, pruned={})
    found = json.loads(export(store, "json", "score", "max"))["trials"]
    assert [each["train.lr"] for each in found] == [1e-05, 0.2]
    header, first = (line.split(",") for line in export(store, "csv", "score", "max").splitlines()[:2])
    assert float(dict(zip(header, first, strict=True))["train.lr"]) == 1e-05


def test_a_trial_knows_its_values_by_their_types():
    overrides = ("train.lr=1e-05", "train.policy_loss='gspo'", "run.sinks=('jsonl', 'console')", "train.critic=None")
    trial = Trial(overrides=overrides, seed=0, id="a-s0", group="g")
    assert list(trial.settings.values()) == [1e-05, "gspo", ("jsonl", "console"), None]
    assert trial.values["train.lr"] == "1e-05"


def test_parameters_of_one_last_name_have_columns_of_their_own(tmp_path):
    store = swept(tmp_path / "s", {ENDED_EARLY: [[0.5]], WHOLE: [[0.4]]}, pruned={})
    record = json.loads((store.path / "sweep.json").read_text())
    for trial, loss in zip(record["trials"], ("ppo", "gspo"), strict=True):
        trial["overrides"] = [f"train.policy_loss='{loss}'", f"policy_loss.{loss}.epsilon_high=0.2"]
    (store.path / "sweep.json").write_text(json.dumps(record))
    heading, first, second, *full = table_text(store, "score", "max").splitlines()
    assert heading.split() == ["policy_loss", "ppo.epsilon_high", "gspo.epsilon_high", "seeds", "score", "±", "best"]
    assert first.split()[:3] == ["ppo", "0.2", "1/1"]
    assert second.index("0.2") == heading.index("gspo.epsilon_high")
    assert " ".join(map(str.strip, full)) == (
        "in full: train.policy_loss, policy_loss.ppo.epsilon_high, policy_loss.gspo.epsilon_high"
    )
    assert max(map(len, (heading, first, second, *full))) <= 80
    assert [trial.label for trial in store.trials] == [
        "policy_loss=ppo ppo.epsilon_high=0.2 seed=0",
        "policy_loss=gspo gspo.epsilon_high=0.2 seed=0",
    ]


def test_a_sweep_over_seeds_alone_has_one_setting(tmp_path):
    store = swept(tmp_path / "s", {WHOLE: [[0.5], [0.4]]}, pruned={})
    record = json.loads((store.path / "sweep.json").read_text())
    for trial in record["trials"]:
        trial["overrides"] = []
    (store.path / "sweep.json").write_text(json.dumps(record))
    heading, line = table_text(store, "score", "max").splitlines()
    assert heading.split()[0] == "setting"
    assert line.startswith("(the config itself)  2/2")


def test_a_spreadsheet_finds_no_formula(tmp_path):
    """A folder may be a stranger's; `=cmd|...` in a cell would run a program where it is opened."""
    store = swept(tmp_path / "s", {WHOLE: [[0.5]]}, pruned={})
    record = json.loads((store.path / "sweep.json").read_text())
    trial = record["trials"][0]
    trial |= {"overrides": ["-a='@b'", "c='+1'", "d=-1.5"]}
    (store.path / "sweep.json").write_text(json.dumps(record))
    metrics = store.folder(store.trials[0]) / "metrics.jsonl"
    metrics.write_text(json.dumps({"phase": "rl", "step": 1, "score": -0.5, "=cmd|' /C calc'!A0": 1}) + "\n")
    table = list(csv.reader(io.StringIO(export(store, "csv", "score", "max"))))
    cells = dict(zip(*table, strict=True))
    assert "'=cmd|' /C calc'!A0" in cells
    assert [cells[name] for name in ("'-a", "c", "d", "score")] == ["'@b", "'+1", "-1.5", "-0.5"]
    assert not [each for row in table for each in row if each.startswith(("=", "+", "@"))]


def test_settings_that_have_recorded_the_same_numbers_are_named(tmp_path):
    alike = swept(tmp_path / "a", {ENDED_EARLY: [[0.2, float("nan")], [0.3]], WHOLE: [[0.2, float("nan")], [0.3]]}, {})
    said = (
        "note: lr=0.1 and lr=0.2 have recorded the same numbers. Do the settings differ in what is computed? With one"
        " update per step, many losses have the same gradient."
    )
    assert alike_text(alike) == [said]
    assert table_text(alike, "score", "max").splitlines()[-1] == said
    assert said in render(alike, "score", "max")
    apart = swept(tmp_path / "b", {ENDED_EARLY: [[0.2], [0.3]], WHOLE: [[0.3], [0.2]]}, {})
    assert alike_text(apart) == []


def test_two_pairs_of_settings_alike_are_one_line(tmp_path):
    curves = {0.1: [[0.2]], 0.2: [[0.2]], 0.3: [[0.3]], 0.4: [[0.3]]}
    (line,) = alike_text(swept(tmp_path / "a", curves, {}))
    assert line.startswith("note: lr=0.1 and lr=0.2 have recorded the same numbers, as have others. Do")

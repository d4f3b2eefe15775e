"""The notebook that is made of the page about notebooks works. Its run is trained; the trials of its sweep and A/B test are simulated."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.lab.ab import stub

import dovetail
from dovetail.config import load, run_id
from dovetail_executor.executor.local import Local
from dovetail_lab.sweep import driver

pytestmark = pytest.mark.slow  # the page trains a run

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOK = DOCS / "notebook.ipynb"
BLOCKS = re.findall(r"```python\n(.*?)```", (DOCS / "notebooks.md").read_text(), re.S)


def cells() -> list[str]:
    """The code of the notebook."""
    held = json.loads(NOTEBOOK.read_text())
    assert held["nbformat"] == 4
    return ["".join(cell["source"]) for cell in held["cells"] if cell["cell_type"] == "code"]


def record(folder: Path) -> None:
    """Replace training: the arm with the higher rate is better by 0.2."""
    config = load(folder / "config.gin")
    rng = np.random.default_rng([config.run.seed, round(1e4 * config.train.lr)])
    level = 0.4 + 0.2 * (config.train.lr > 2e-4) + rng.normal(0, 0.01)
    line = {"phase": "rl", "step": config.train.steps, "eval/accuracy": level}
    (folder / "run.json").write_text(json.dumps({"run_id": run_id(config)}))
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Run the whole notebook in a folder of its own, and return the values of its names."""
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        patch.setattr(Local, "open", lambda self, sweep, jobs: stub.Workers(sweep, dict.fromkeys(range(9), record)))
        patch.setattr(driver, "TICK_SECONDS", 0.001)
        for code in cells():
            exec(compile(code, NOTEBOOK.name, "exec"), names)
        yield names


def test_the_notebook_has_the_code_of_the_page():
    assert cells() == [block.rstrip("\n") for block in BLOCKS]


def test_the_columns_of_a_run_are_typed_and_of_one_length(page):
    metrics = page["metrics"]
    assert metrics["step"].dtype == np.int64
    assert metrics["step"].tolist() == [0, 1, 2, 3, 4]
    assert {column.dtype.kind for name, column in metrics.items() if name not in ("step", "phase")} == {"f"}
    assert {len(column) for column in metrics.values()} == {5}
    assert np.isfinite(metrics["eval/accuracy"][[0, 2, 4]]).all()
    assert np.isnan(metrics["eval/accuracy"][[1, 3]]).all()


def test_both_phases_are_one_table_with_all_columns(page):
    whole = page["run"].metrics(phase=None)
    assert list(dict.fromkeys(whole["phase"])) == ["sft", "rl"]
    assert "reward/mean" in whole
    assert np.isnan(whole["reward/mean"][0])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_are_made_of_it(page, library):
    frame = pytest.importorskip(library).DataFrame(page["run"].metrics(phase=None))
    assert frame.shape == (len(page["run"].metrics(None)["step"]), len(page["run"].metrics(None)))
    assert str(frame["step"].dtype).lower() == "int64"
    assert str(frame["reward/mean"].dtype).lower() == "float64"


def test_polars_reads_all_columns_of_the_raw_file_as_the_page_says(page, tmp_path):
    polars = pytest.importorskip("polars")
    lines = (page["run"].folder / "metrics.jsonl").read_text().splitlines()
    columns = list(dict.fromkeys(name for line in lines for name in json.loads(line)))
    file = tmp_path / "metrics.jsonl"
    file.write_text("\n".join([*lines[:1] * 150, *lines]) + "\n")  # a warm start of more than a hundred steps
    frame = polars.read_ndjson(file, infer_schema_length=None)
    assert sorted(frame.columns) == sorted(columns)
    assert frame["reward/mean"].drop_nulls().len() == 4
    assert len(polars.read_ndjson(file).columns) < len(columns), "the reason for the page's advice"


def test_the_config_of_a_run_is_the_one_it_was_trained_with(page):
    assert page["run"].config.train.prompts == 4
    assert page["run"].id == run_id(page["config"])
    assert len(page["samples"]["completion"]) == len(page["samples"]["step"]) > 0


def test_a_finished_run_is_given_back(page):
    assert dovetail.train(page["config"], page["run"].folder).id == page["run"].id
    with pytest.raises(dovetail.DovetailError, match="Did you mean"):
        dovetail.train("quickstart", settings={"train.stps": 3})


def test_a_sweep_is_a_table(page):
    assert page["table"]["train.lr"] == [1e-4, 3e-4, 1e-4, 3e-4]
    assert page["table"]["seed"] == [0, 0, 1, 1]
    assert page["table"]["status"] == ["done"] * 4
    assert len(page["swept"].runs()) == 4


def test_an_ab_test_has_its_verdict(page):
    assert page["result"].comparisons["fast"].verdict == "better"
    assert page["result"].runs.doubts == ()


def test_a_folder_without_a_run_names_those_beside_it(page):
    with pytest.raises(
        dovetail.DovetailError, match=r"'runs/frist' is not the folder of a run .*Did you mean 'first'\?"
    ):
        dovetail.open_run("runs/frist")

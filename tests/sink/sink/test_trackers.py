"""Weights & Biases, MLflow and Trackio with the real packages, none of which reaches for a network here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail_sink._tracked import Tracked
from dovetail_sink.sink.mlflow import MLflow
from dovetail_sink.sink.trackio import Trackio
from dovetail_sink.sink.wandb import WandB

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the packages are not ours to mend
STEPS = (
    (5, {"sft/loss": 2.0, "time/step": 1.0}),
    (0, {"eval/accuracy": 0.25, "eval/pass@4": 0.5}),
    (1, {"reward/mean": 1.5, "kl/mean": float("nan"), "time/step": 3.0}),
)
AGAIN = ((1, {"reward/mean": 1.5}), (2, {"reward/mean": 2.5}))
"""After a crash in step 2 without a checkpoint since step 0."""


def trial(sweep: Path, name: str) -> Path:
    folder = sweep / "trials" / name
    folder.mkdir(parents=True)
    (sweep / "sweep.json").write_text("{}")
    (folder / "run.json").write_text(json.dumps({"run_id": name}))
    (folder / "config.gin").write_text("# a config\ntrain.lr = 0.001\ntrain.policy_loss = 'gspo'\n")
    return folder


def write(sink, folder: Path, records, start: int = 0) -> None:
    opened = sink.open(folder, 10, start)
    for step, metrics in records:
        opened.write(step, metrics)
    opened.close()


@pytest.mark.slow
def test_mlflow_has_the_runs_of_a_sweep_below_one(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    sink = MLflow(uri=f"sqlite:///{tmp_path}/mlflow.db")
    for name in ("a-s0", "a-s1"):
        folder = trial(tmp_path / "lr", name)
        write(sink, folder, STEPS)
        write(sink, folder, AGAIN)
    client = mlflow.MlflowClient(sink.uri)
    runs = client.search_runs([client.get_experiment_by_name("dovetail").experiment_id])
    by_name = {run.info.run_name: run for run in runs}
    assert sorted(by_name) == ["a-s0", "a-s1", "lr"], "resumed, not begun again"
    run = by_name["a-s1"]
    assert run.data.tags["mlflow.parentRunId"] == by_name["lr"].info.run_id
    assert run.data.params == {"train.lr": "0.001", "train.policy_loss": "'gspo'"}
    assert [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, "reward/mean")] == [
        (1, 1.5),
        (2, 2.5),
    ]
    assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "sft/time/step")] == [(5, 1.0)]
    assert run.data.metrics["eval/pass_4"] == 0.5
    assert run.info.status == "FINISHED"


READ_WANDB = """
import struct, sys
from wandb.proto import wandb_internal_pb2
for path in sys.argv[1:]:
    data, position = open(path, "rb").read(), 7
    while position < len(data):  # checksum, length and type, then the record; there is one block
        _, length, kind = struct.unpack_from("<IHB", data, position)
        assert kind == 1, kind
        record = wandb_internal_pb2.Record.FromString(data[position + 7 : position + 7 + length])
        position += 7 + length
        if record.HasField("run"):
            config = {item.key: item.value_json for item in record.run.config.update}
            print("run", record.run.run_id, record.run.run_group, config["train.lr"])
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            print("log", sorted((key, value) for key, value in items.items() if not key.startswith("_")))
"""


@pytest.mark.slow
def test_wandb_writes_what_can_be_synced_later(tmp_path):
    pytest.importorskip("wandb")
    folder = trial(tmp_path / "lr", "a-s0")
    write(WandB(), folder, STEPS)
    write(WandB(), folder, AGAIN)
    files = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime_ns)
    read = subprocess.run(
        [sys.executable, "-c", READ_WANDB, *map(str, files)], capture_output=True, text=True, check=False
    )
    assert not read.returncode, read.stderr
    lines = read.stdout.splitlines()
    (run,) = {line for line in lines if line.startswith("run")}
    assert run.split()[1].startswith("a-s0-")
    assert run.split()[2:] == ["lr", '"0.001"'], "the group is the sweep"
    logged = [line for line in lines if line.startswith("log")]
    assert len(logged) == 4
    assert "('sft/loss', '2')" in logged[0] or "('sft/loss', '2.0')" in logged[0]
    assert "('sft/step', '5')" in logged[0]
    assert "('step', '1')" in logged[2]
    assert "('reward/mean', '2.5')" in logged[3]


@pytest.mark.slow
def test_trackio_keeps_a_run_on_this_machine(tmp_path, monkeypatch):
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    folder = trial(tmp_path / "lr", "a-s0")
    code = (
        "import json, sys; from pathlib import Path; from dovetail_sink.sink.trackio import Trackio\n"
        "from tests.sink.sink.test_trackers import AGAIN, STEPS, write\n"
        "folder = Path(sys.argv[1]); write(Trackio(), folder, STEPS); write(Trackio(), folder, AGAIN)\n"
        "import trackio\n"
        "(run,) = trackio.Api().runs('dovetail')\n"
        "print(run.name, run.config['_Group'], run.config['train.lr'])\n"
        "from trackio.sqlite_storage import SQLiteStorage\n"
        "logs = SQLiteStorage.get_logs('dovetail', run.name)\n"
        "print([(each['step'], each['reward/mean']) for each in logs if 'reward/mean' in each])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    name, values = done.stdout.splitlines()
    assert name.startswith("a-s0-")
    assert name.endswith(" lr 0.001")
    assert values == "[(1, 1.5), (2, 2.5)]"


@pytest.mark.parametrize(("sink", "module"), [(WandB(), "wandb"), (MLflow(), "mlflow"), (Trackio(), "trackio")])
def test_what_is_not_installed_is_said_with_its_extra(sink, module, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"sink '{module}' needs .*: pip install .*\[{module}\]"):
        sink.open(tmp_path, 1, 0)


def test_a_run_s_folder_may_be_one_of_the_root():
    about = Tracked.of(Path("/a-run-that-is-not-there"))
    assert (about.name, about.sweep) == ("a-run-that-is-not-there", None)


def test_an_extended_run_is_the_run_that_a_tracker_knows(tmp_path):
    folder = trial(tmp_path / "lr", "a-s0")
    before = Tracked.of(folder).key
    (folder / "run.json").write_text(json.dumps({"run_id": "b-s0", "extended": [{"run_id": "a-s0"}, {"run_id": "c"}]}))
    assert Tracked.of(folder).key == before

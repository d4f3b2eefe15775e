"""The contract of every sink; new sinks join by registration."""

import os
import tempfile

import pytest

import dovetail

os.environ.setdefault("TRACKIO_DIR", tempfile.mkdtemp(prefix="dovetail-"))


# of packages that are installed for slow tests alone, whose own deprecation warnings are not ours to mend
TRACKERS = ("mlflow", "trackio", "wandb")
MARKS = (pytest.mark.slow, pytest.mark.filterwarnings("ignore"))
NAMES = [pytest.param(name, marks=MARKS if name in TRACKERS else ()) for name in dovetail.names("sink")]


@pytest.fixture(params=NAMES)
def maker(request, tmp_path):
    if request.param in TRACKERS:
        pytest.importorskip(request.param)
    params = {"uri": f"sqlite:///{tmp_path}/mlflow.db"} if request.param == "mlflow" else {}
    return dovetail.get("sink", request.param).bind(**params)


@pytest.mark.parametrize("start", [0, 3])
def test_a_sink_takes_any_metrics_and_closes_twice(maker, start, tmp_path):
    sink = maker.open(tmp_path, 5, start)
    sink.write(start, {"eval/accuracy": 0.5})
    sink.write(start + 1, {"reward/mean": 1.0, "a/figure/of a plugin": float("nan")})
    sink.write(start + 2, {})
    sink.close()
    sink.close()


def test_closing_without_a_record_is_fine(maker, tmp_path):
    maker.open(tmp_path, 5, 0).close()

"""Trials on a cluster of two machines, one of which is lost in the middle."""

import sys
import threading
import time

import pytest
from tests.lab.sweep.test_worker import SETS
from tests.ray_cluster import two_machines

from dovetail.errors import ConfigError
from dovetail_executor.executor.ray import Ray
from dovetail_lab.sweep import Point, Quiet, Store, Terms, drive, plan_trials

PATIENCE_SECONDS = 300


def test_without_ray_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"needs Ray: pip install .*\[ray\]"):
        Ray().open(tmp_path, 1)


@pytest.fixture
def cluster():
    """Two machines of one worker each, and a head without any."""
    with two_machines(cpus=1) as made:
        yield made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_trials_survive_the_loss_of_a_machine(cluster, tmp_path):
    made, nodes = cluster
    points = [Point((f"train.lr={lr}",), 0) for lr in (1e-2, 1e-3, 1e-4)]
    planned = plan_trials(None, [*SETS, "train.steps=60", "run.checkpoint_every=5", "eval.every=60"], points)
    store = Store.create(tmp_path / "sweep", planned, {})
    first = store.trials[0]

    def lose_a_machine():
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(store.metrics(first)) < 12 and time.monotonic() < deadline:
            time.sleep(0.05)
        made.remove_node(nodes[0], allow_graceful=False)

    loss = threading.Thread(target=lose_a_machine)
    loss.start()
    told: list[str] = []
    counts = drive(
        store, Ray(address=made.address), Terms(jobs=2, retry=2), watch=Quiet(told.append), prepare=lambda _: None
    )
    loss.join()
    assert counts == {"done": 3}, told
    assert any("its Ray worker is gone" in line and "more tries" in line for line in told), told
    assert {store.state(trial).attempts for trial in store.trials} == {1, 2}
    for trial in store.trials:
        steps = [line["step"] for line in store.metrics(trial) if "reward/mean" in line]
        assert steps == list(range(1, 61)), "it went on from its checkpoint, and every step is recorded once"

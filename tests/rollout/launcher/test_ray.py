"""Replicas on a cluster of two machines, one of which is lost."""

import sys
import warnings
from contextlib import closing

import numpy as np
import pytest
from tests.ray_cluster import two_machines
from tests.rollout.hosted.test_fleet import FAKE, QWEN2, batch, until
from tests.rollout.hosted_case import case

from dovetail.errors import ConfigError, RunError
from dovetail_rollout.launcher.ray import Ray


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"launcher 'ray' needs Ray: pip install .*\[ray\]"):
        Ray().check()


@pytest.fixture
def cluster():
    """A head, and two machines with room for two replicas each."""
    with two_machines(cpus=2) as made:
        yield made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_replicas_survive_the_loss_of_a_machine(cluster, tmp_path):
    made, nodes = cluster
    greedy = Ray(address=made.address, cpus=2.0, seconds=2.0)
    with pytest.raises(RunError, match=r"3 replicas with CPU 2 each; the cluster has CPU 4 \(4 free\), so that CPU 2"):
        greedy.open(3)
    apart = Ray(address=made.address, strategy="STRICT_SPREAD", seconds=2.0)
    with pytest.raises(RunError, match=r"its 3 machines have room for \[2, 2, 0\] of them, .*'STRICT_SPREAD'"):
        apart.open(3)

    launcher = Ray(address=made.address, strategy="SPREAD")
    each = case(
        "vllm", tmp_path, QWEN2, command=FAKE, replicas=2, launcher=launcher, probe=0.0, start_seconds=300.0, restarts=2
    )
    with closing(each.open()) as engine:
        members = engine.host.members
        homes = {number: member.host.place.node for number, member in members.items()}
        assert len(set(homes.values())) == 2
        expected = batch(engine)
        engine.sync(each.other, version=1)

        lost = next(number for number, home in homes.items() if home == nodes[0].node_id)
        made.remove_node(nodes[0], allow_graceful=False)
        until(lambda: not members[lost].host.healthy(), seconds=300)  # its processes end a moment later
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            drawn = batch(engine)
            until(lambda: members[lost].routable, seconds=240)
            engine.sync(each.weights, version=2)
            again = batch(engine)
        np.testing.assert_array_equal(drawn.tokens, expected.tokens)
        np.testing.assert_array_equal(again.tokens, expected.tokens)
        assert any(f"replica {lost} is restarted" in str(each.message) for each in said), [str(s.message) for s in said]
        assert members[lost].host.place.node == nodes[1].node_id

"""Rewards on a cluster of two machines, one of which is lost."""

import os
import subprocess
import sys
import time

import attrs
import pytest
from tests.executor.pool import cases
from tests.kit.test_workers import is_running
from tests.ray_cluster import two_machines

from dovetail.errors import ConfigError, RewardError, RunError
from dovetail_executor.pool.ray import Ray


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pool 'ray' needs Ray: pip install .*\[ray\]"):
        cases.component(cases.obey).bind(pool=Ray())


@pytest.fixture
def cluster():
    """A head, and two machines with room for one worker each."""
    with two_machines(cpus=1) as made:
        yield made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_rewards_survive_the_loss_of_a_machine(cluster, tmp_path):
    made, nodes = cluster
    pool = Ray(address=made.address, workers=2, seconds=300.0, wait=300.0)
    reward = cases.component(cases.length).bind(pool=pool)
    given = ["a", "bbb", "cc", "dd"], [0, 0, 1, 1]
    scores, metrics = reward(*given)
    assert scores == cases.length(*given)[0]
    assert os.getpid() not in metrics["process"]
    made.remove_node(nodes[0], allow_graceful=False)
    made.add_node(num_cpus=1)
    assert reward(*given)[0] == scores
    reward.workers.close()

    obey = cases.component(cases.obey)
    again = f"end_once {tmp_path / 'note'}"
    assert obey.bind(pool=pool)([again, "two", "abstain"])[0] == [8.0, 3.0, None]
    with pytest.raises(RewardError, match="raised KeyError"):
        obey.bind(pool=pool)(["raise"])
    obey.bind(pool=pool).workers.close()
    late = attrs.evolve(pool, seconds=20.0, failed="abstain", workers=1)
    assert obey.bind(pool=late)(["sleep", "two"])[0] == [None, 3.0]
    obey.bind(pool=late).workers.close()

    greedy = obey.bind(pool=attrs.evolve(pool, resources={"sandbox": 1}, wait=2.0))
    with pytest.raises(RunError, match=r"after 2 s there is no room for a worker with CPU 1, sandbox 1; .* sandbox 0 "):
        greedy(["one"])


PROGRAM = """
from tests.executor.pool import cases
from dovetail_executor.pool.ray import Ray

reward = cases.component(cases.length).bind(pool=Ray(workers=1, cpus=0))
print(int(reward(["a"], [0])[1]["process"][0]), flush=True)
cases.component(cases.obey).bind(pool=Ray(workers=1, cpus=0, seconds=3600))(["sleep"])
"""


@pytest.mark.slow
def test_a_program_that_is_killed_leaves_nothing_behind():
    pytest.importorskip("ray")
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as started:
        worker = int(started.stdout.readline())
        time.sleep(1)
        started.kill()
    end = time.monotonic() + 300
    while is_running(worker):
        assert time.monotonic() < end
        time.sleep(0.1)

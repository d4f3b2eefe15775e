"""A Ray cluster of several machines, which are processes of this one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def two_machines(cpus: int) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a cluster whose head has no CPUs, and its two machines of `cpus` each; skip where Ray is not installed."""
    pytest.importorskip("ray")
    import ray
    from ray.cluster_utils import Cluster

    options = {"object_store_memory": 100 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **options})
    try:
        yield made, [made.add_node(num_cpus=cpus, **options) for _ in range(2)]
    finally:
        ray.shutdown()
        made.shutdown()

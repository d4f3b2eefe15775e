"""Joining a Ray cluster."""

from types import SimpleNamespace

import pytest
from tests.core.training.several import free_port

from dovetail.errors import ConfigError
from dovetail_kit.ray_cluster import join


def refused(error):
    def init(**_):
        raise error

    return SimpleNamespace(is_initialized=lambda: False, init=init)


def test_an_address_without_a_cluster_is_named_with_its_setting():
    expected = "launcher.ray.address = 'auto': no Ray cluster there: could not connect: timed out"
    with pytest.raises(ConfigError, match=f"^{expected}$"):
        join(refused(ConnectionError("could not connect:\n  timed out")), "auto", "launcher.ray.address")


@pytest.mark.parametrize(
    ("address", "said"),
    [("127.0.0.1:{port}", "Connection refused"), ("ray://127.0.0.1:{port}", "refused"), ("localhost:x", "invalid lit")],
)
def test_where_nobody_listens_ray_is_not_asked(address, said):
    address = address.format(port=free_port())
    with pytest.raises(ConfigError, match=f"^pool.ray.address = '{address}': no Ray cluster there: .*{said}"):
        join(refused(AssertionError), address, "pool.ray.address")


def test_a_cluster_that_wants_a_token_says_so():
    error = ConnectionError("Failed to connect to Ray cluster")
    error.__cause__ = RuntimeError("ray.exceptions.AuthenticationError: Authentication token is missing")
    with pytest.raises(ConfigError, match=r"it wants a token: set RAY_AUTH_MODE=token, and have the head's ~/\.ray/"):
        join(refused(error), "auto", "pool.ray.address")


def test_a_cluster_that_is_joined_already_belongs_to_who_joined_it():
    assert join(SimpleNamespace(is_initialized=lambda: True, init=None), None, "executor.ray.address") is False

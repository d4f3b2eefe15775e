"""Joining a Ray cluster."""

from types import SimpleNamespace

import pytest

from dovetail.errors import ConfigError
from dovetail_kit.ray_cluster import join


def absent(**_):
    raise ConnectionError("could not connect:\n  timed out")


def test_an_address_without_a_cluster_is_named_with_its_setting():
    ray = SimpleNamespace(is_initialized=lambda: False, init=absent)
    expected = "launcher.ray.address = 'head:6379': no Ray cluster there: could not connect: timed out"
    with pytest.raises(ConfigError, match=expected):
        join(ray, "head:6379", "launcher.ray.address")


def test_a_cluster_that_is_joined_already_belongs_to_who_joined_it():
    assert join(SimpleNamespace(is_initialized=lambda: True, init=absent), None, "executor.ray.address") is False

"""A working folder in which `dovetail ab` runs without training and without processes."""

import pytest
from tests.lab.ab import stub


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty config in an empty working folder, and an executor without processes; returns its mishaps by seed."""
    return stub.without_processes(tmp_path, monkeypatch)

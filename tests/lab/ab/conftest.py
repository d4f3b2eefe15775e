"""A working folder in which `dovetail ab` runs without training and without processes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab.ab import stub

from dovetail_executor.executor.local import Local
from dovetail_lab.sweep import driver


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty config in an empty working folder, and an executor without processes; returns its mishaps by seed."""
    mishaps: dict[int, Callable[[Path], None]] = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Local, "open", lambda self, sweep, jobs: stub.Workers(sweep, mishaps))
    monkeypatch.setattr(driver, "TICK_SECONDS", 0.001)
    (tmp_path / "mine.gin").write_text("")
    return mishaps

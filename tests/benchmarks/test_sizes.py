"""The table of model sizes by hardware says what fits into each memory."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def sizes(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("sizes")


def test_a_row_of_the_table(sizes, monkeypatch):
    """Three plans give a row: 10 GB at least, 1 MB for each more token, 2 GB for each more completion."""
    gigabytes = {(2048, 1): 10.0, (8192, 1): 10.0 + 6.144, (2048, 8): 10.0 + 7 * 2}
    monkeypatch.setattr(sizes, "peak", lambda *of: gigabytes[of[-2:]] * 1e9)
    least, *cells = sizes.longer("any", "all", 8)
    found = dict(zip(sizes.MEMORY, cells, strict=True))
    assert least == "10.0 GB"
    assert found[16] == "4,096; 2"  # 4.4 GB are left of 14.4
    assert found[24] == "8,192; 4"
    assert found[141] == "32,768; 8"  # 64 completions on 8 devices
    gigabytes[2048, 1] = 15.0
    assert sizes.longer("any", "all", 1)[1] == "does not fit"
    assert sizes.planned("any", "all", 1)[:3] == ["15.0 GB", "does not fit", "fits"]


@pytest.mark.slow
def test_eight_devices_hold_less_each(sizes):
    importlib.import_module("workloads").register()
    assert sizes.peak("tiny", "all", 8, 256, 1) < sizes.peak("tiny", "all", 1, 256, 1)

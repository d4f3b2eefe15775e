"""An example on the path as if it were installed: the one that a test file names by `EXAMPLE` and `PROJECT`."""

import pytest
from tests.distribution import write_distribution

from dovetail.registry import _discovered


@pytest.fixture
def installed(request, tmp_path, monkeypatch):
    project = request.module.PROJECT
    monkeypatch.syspath_prepend(str(request.module.EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path))
    write_distribution(tmp_path, project["name"], {}, project["entry-points"], version=project["version"])
    _discovered.cache_clear()
    yield
    _discovered.cache_clear()

"""A hub, and a cache of its own, for each test."""

import pytest
from tests.model.source.fake_hub import serve

from dovetail_model.source import hub as module


@pytest.fixture
def hub(tmp_path, monkeypatch):
    from huggingface_hub import constants, utils

    with serve() as fake:
        monkeypatch.setattr(constants, "ENDPOINT", fake.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", fake.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        utils.disable_progress_bars()
        forget()
        yield fake
        forget()
        utils.enable_progress_bars()


def forget():
    """What one process looks up only once, the next looks up again."""
    module._LOOKED_UP.clear()
    module._fetch.cache_clear()

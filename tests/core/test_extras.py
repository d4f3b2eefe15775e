"""The suggested command for installing an optional library matches the current installation."""

import json
from importlib import metadata

import pytest

from dovetail.extras import DISTRIBUTION, needs, requirement

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIT = {
    "url": "https://example.org/d.git",
    "vcs_info": {"vcs": "git", "commit_id": COMMIT, "requested_revision": "main"},
}


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (None, f'"{DISTRIBUTION}[hf]"'),
        ({"url": "file:///home/me/dovetail", "dir_info": {"editable": True}}, '-e "/home/me/dovetail[hf]"'),
        ({"url": "file:///home/me/dovetail", "dir_info": {}}, '"/home/me/dovetail[hf]"'),
        (GIT, f'"{DISTRIBUTION}[hf] @ git+https://example.org/d.git@{COMMIT}"'),
    ],
)
def test_it_is_what_pip_wrote_down(origin, said, monkeypatch):
    class Installed:
        def read_text(self, name):
            return json.dumps(origin) if origin and name == "direct_url.json" else None

    monkeypatch.setattr(metadata, "distribution", lambda name: {DISTRIBUTION: Installed()}[name])
    assert requirement("hf") == said
    assert needs("reading parquet", "pyarrow", "hf") == f"reading parquet needs pyarrow: pip install {said}"


def test_without_a_distribution_it_is_a_release(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    assert requirement("hf") == f'"{DISTRIBUTION}[hf]"'

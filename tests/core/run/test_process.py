"""Where compiled programs are kept, and what is said where they cannot be."""

from pathlib import Path

import jax
import pytest

from dovetail.errors import DovetailWarning
from dovetail.run.process import CACHE, cache_folder, prepare, refusal

FOLDER = "jax_compilation_cache_dir"


@pytest.fixture(autouse=True)
def restored():
    """JAX's settings are those of the whole process."""
    names = (FOLDER, "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c"}, "/c/dovetail/xla"),
        ({"XDG_CACHE_HOME": ""}, "/h/.cache/dovetail/xla"),
        ({"XDG_CACHE_HOME": "relative"}, "/h/.cache/dovetail/xla"),
        ({}, "/h/.cache/dovetail/xla"),
        ({CACHE: "gs://bucket/a", "XDG_CACHE_HOME": "/c"}, "gs://bucket/a"),
        ({CACHE: ""}, ""),
    ],
)
def test_where_programs_are_kept(variables, folder, monkeypatch):
    for name in (CACHE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/h"} | variables).items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == folder


def test_without_a_home_nothing_is_kept(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder() == ""
    prepare()
    assert not getattr(jax.config, FOLDER)


def test_what_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    assert refusal(str(tmp_path / "a" / "b")) == ""
    assert refusal("gs://bucket/a") == ""
    assert "File exists" in refusal(str(tmp_path / "file"))
    assert "Not a directory" in refusal(str(tmp_path / "file" / "a"))
    assert "null" in refusal("a\0b")


def test_a_cache_that_cannot_be_written_is_one_warning(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE, str(tmp_path / "file"))
    with pytest.warns(DovetailWarning, match=r"not kept: folder '.*file' cannot be written: File exists; set JAX_"):
        prepare()
    assert not getattr(jax.config, FOLDER)

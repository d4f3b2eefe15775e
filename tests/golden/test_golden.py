"""The files of golden facts are consistent, and no test is skipped if they are missing."""

import numpy as np
import pytest
from tests.golden import GOLDEN, load


def test_missing_facts_are_an_error():
    with pytest.raises(FileNotFoundError, match="nobody"):
        load("nobody")


@pytest.mark.parametrize("library", ["verl", "tunix", "agents"])
def test_every_array_belongs_to_a_case_and_is_stored_once(library):
    cases, arrays = load(library)
    assert {at for case in cases for side in ("inputs", "outputs") for at in case[side].values()} == arrays.keys()
    contents = [(array.dtype.str, array.shape, array.tobytes()) for array in arrays.values()]
    assert len(contents) == len(set(contents))


def test_no_archive_holds_objects():
    """Reading an archive with pickled objects can run code."""
    for file in sorted(GOLDEN.rglob("*.npz")):
        with np.load(file, allow_pickle=False) as archive:
            assert all(archive[name].dtype != object for name in archive.files), file


def test_the_readme_names_every_file():
    text = (GOLDEN / "README.md").read_text()
    files = [file.name for file in GOLDEN.iterdir() if file.suffix in {".json", ".npz"}]
    assert [name for name in files if f"`{name}`" not in text] == []

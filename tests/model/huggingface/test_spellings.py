"""What transformers 5 writes, and what transformers 4 wrote of the same model."""

import json
from pathlib import Path

import pytest

from dovetail_model.huggingface.spellings import with_old_spellings

GOLDEN = Path(__file__).parents[2] / "golden" / "hf"


@pytest.mark.parametrize("folder", sorted(GOLDEN.iterdir()), ids=lambda folder: folder.name)
def test_old_readers_find_what_they_look_for(folder):
    new, old = (json.loads((folder / name).read_text()) for name in ("config.json", "config.legacy.json"))
    both = with_old_spellings(new)
    assert {name: both.get(name) for name in old if name != "transformers_version"} == {
        name: value for name, value in old.items() if name != "transformers_version"
    }
    assert {name: both[name] for name in new} == new, "and new ones what they did"


def test_an_old_file_stays_as_it_is():
    old = json.loads((GOLDEN / "gemma3" / "config.legacy.json").read_text())
    assert with_old_spellings(old).items() >= old.items()

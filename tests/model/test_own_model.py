"""The example of `docs/models.md`: a model is called alone, with a cache and with a prefix."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_example_of_a_prefix_is_what_a_model_does():
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 8
    assert found.failed == 0

"""What the host adds to a batch: dataset columns as fields."""

import numpy as np
import pytest

from dovetail.errors import DataError
from dovetail.train.drawn import numbers


def rows(*values):
    return [{"prompt": f"prompt {i}", "difficulty": value} for i, value in enumerate(values)]


def test_a_column_of_numbers_is_a_field():
    found = numbers(rows(2, 0.5, True, np.float64(3)), "difficulty")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [2, 0.5, 1, 3])


@pytest.mark.parametrize("value", ["3", None, float("nan"), float("inf"), 10**400, [1]])
def test_a_column_that_holds_something_else_is_refused_with_value_and_prompt(value):
    with pytest.raises(DataError) as caught:
        numbers(rows(1, value), "difficulty")
    message = str(caught.value)
    assert message.startswith("the column 'difficulty' is read as a field, and is ")
    assert message.endswith("where the prompt is 'prompt 1'; a field holds finite numbers")
    assert repr(value)[:40] in message

"""Records are joined and selected from, each field by what it has an entry for."""

import attrs
import numpy as np

from dovetail.host.records import OF_ALL, OF_PROMPTS, joined, selected


@attrs.frozen
class Inner:
    values: np.ndarray
    names: tuple[str, ...] = attrs.field(metadata=OF_ALL)
    metrics: dict[str, np.ndarray]


@attrs.frozen
class Outer:
    prompts: tuple[str, ...] = attrs.field(metadata=OF_PROMPTS)
    inner: Inner
    absent: Inner | None = None


def record(first: int, prompts: str, **metrics) -> Outer:
    values = np.arange(first, first + 2 * len(prompts))
    return Outer(tuple(prompts), Inner(values, ("a",), {name: values + more for name, more in metrics.items()}))


def test_rows_and_prompts_are_concatenated_and_what_is_the_same_is_kept():
    found = joined([record(0, "xy", one=0.5), record(9, "z")], [4, 2])
    assert found.prompts == ("x", "y", "z")
    assert found.inner.values.tolist() == [0, 1, 2, 3, 9, 10]
    assert found.inner.names == ("a",)
    np.testing.assert_array_equal(found.inner.metrics["one"], [0.5, 1.5, 2.5, 3.5, np.nan, np.nan])
    assert found.absent is None


def test_prompts_are_selected_with_their_rows_in_the_order_asked_for():
    found = selected(record(0, "xyz", one=0.5), np.array([2, 0]), 2)
    assert found.prompts == ("z", "x")
    assert found.inner.values.tolist() == [4, 5, 0, 1]
    assert found.inner.names == ("a",)
    assert found.inner.metrics["one"].tolist() == [4.5, 5.5, 0.5, 1.5]

import collections.abc
import enum
import math
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Interval, Le, Lt

from dovetail.config.grammar import Word
from dovetail.config.types import Mismatch, fit, literal


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "hint", "fitted"),
    [
        (1, int, 1),
        (1, float, 1.0),
        (1, float | None, 1.0),
        (None, float | None, None),
        (1, int | float, 1),
        (True, int | bool, True),
        (1, float | str, 1.0),
        ("a", Literal["a", "b"], "a"),
        ([1, 2], tuple[int, ...], (1, 2)),
        ((1, 2), list[float], [1.0, 2.0]),
        ((), tuple[int, ...], ()),
        ((1, "a"), tuple[float, str], (1.0, "a")),
        ([[1], (2, 3)], tuple[tuple[float, ...], ...], ((1.0,), (2.0, 3.0))),
        ([1], collections.abc.Sequence[float], [1.0]),
        ({"a": 1}, dict[str, float], {"a": 1.0}),
        ({"a": [1]}, collections.abc.Mapping[str, tuple[float, ...]], {"a": (1.0,)}),
        ([1, "a"], list, [1, "a"]),
        ([1, "a"], tuple, (1, "a")),
        (2, Annotated[float, "unit"], 2.0),
        ([1, (2,)], Any, [1, (2,)]),
        (1, object, 1),
        (0, Annotated[float, Ge(0)], 0.0),
        (None, Annotated[float, Ge(0)] | None, None),
        (None, Annotated[float | None, Ge(0)], None),
        ([0, 1], tuple[Annotated[float, Interval(ge=0, le=1)], ...], (0.0, 1.0)),
    ],
)
def test_a_value_is_converted_where_nothing_is_lost(value: Any, hint: Any, fitted: Any):
    result = fit(value, hint)
    assert (result, repr(result)) == (fitted, repr(fitted))


@pytest.mark.parametrize(
    ("value", "hint", "said"),
    [
        (True, int, "expected int, got True."),
        (True, float, "expected float, got True."),
        (1, bool, "expected bool, got 1."),
        (1.0, int, "expected int, got 1.0."),
        ("1", int, "expected int, got '1'."),
        (None, float, "expected float, got None."),
        (10**400, float, "expected float, got 1000"),
        ("a", int | None, "expected int | None, got 'a'."),
        ("none", int | None, "expected int | None, got 'none'. Did you mean None?"),
        (0, Annotated[int, Ge(1)] | None, "expected int >= 1 | None, got 0. Did you mean None?"),
        ("true", bool, "expected bool, got 'true'. Did you mean True?"),
        ("los", Literal["loss", "reward"], "expected 'loss' or 'reward', got 'los'. Did you mean 'loss'?"),
        ((1, True), tuple[int, ...], "expected tuple[int, ...], got (1, True)."),
        ((1,), tuple[int, int], "expected tuple[int, int], got (1,)."),
        ({"a": "b"}, dict[str, float], "expected dict[str, float], got {'a': 'b'}."),
        ([True], list[int | str], "expected list[int | str], got [True]."),
        (1, collections.abc.Callable, "expected Callable, got 1."),
        (-1, Annotated[float, Ge(0)], "expected float >= 0, got -1."),
        (1, Annotated[float, Gt(1)] | None, "expected float > 1 | None, got 1."),
        (0, Annotated[int | None, Ge(1)], "expected int >= 1 | None, got 0."),
        (math.nan, Annotated[float, Le(2.5)], "expected float <= 2.5, got nan."),
        (1, Annotated[float, Interval(ge=0, lt=1)], "expected 0 <= float < 1, got 1."),
        ("a", Annotated[float, Ge(0), Lt(9)], "expected 0 <= float < 9, got 'a'."),
        ("none", Annotated[float, Ge(0)] | None, "expected float >= 0 | None, got 'none'. Did you mean None?"),
        ((1, -1), tuple[Annotated[float, Ge(0)], ...], "expected tuple[float >= 0, ...], got (1, -1)."),
    ],
)
def test_what_does_not_fit_says_what_was_expected(value: Any, hint: Any, said: str):
    with pytest.raises(Mismatch) as caught:
        fit(value, hint)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("value", [{1, 2}, b"x", 1j, Colour.RED, len, [object()]])
def test_what_gin_cannot_write_is_refused(value: Any):
    with pytest.raises(Mismatch, match="is not a gin value"):
        fit(value, Any)


def test_a_word_of_a_file_needs_quotes():
    with pytest.raises(Mismatch, match=r"gold is not quoted, .* expected str \| None. Write 'gold'."):
        fit(Word("gold"), str | None)
    with pytest.raises(Mismatch, match="expected bool. Did you mean True?"):
        fit([Word("true")][0], bool)
    with pytest.raises(Mismatch, match=r"expected list\[str\]"):
        fit([Word("gold")], list[str])


def test_a_free_word_is_a_text():
    assert fit((Word("gold", free=True),), tuple[str, ...]) == ("gold",)


def test_a_value_is_a_copy():
    default = {"a": [1]}
    fit(default, Any)["a"].append(2)
    assert default == {"a": [1]}


def test_nan_equals_itself_in_a_container():
    assert fit([float("nan")], Any) == [math.nan]


def test_numbers_are_written_so_that_they_read_back():
    assert literal([math.inf, -math.inf, 0.1, -0.0, 1e-300]) == "[inf, -inf, 0.1, -0.0, 1e-300]"

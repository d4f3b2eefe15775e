import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_rollout.decoding.decode import Drawn
from dovetail_rollout.decoding.stops import Stops

WORDS = ("", "a", "b", "ab", " ", "</x", ">")


def decode(ids):
    return "".join(WORDS[i] for i in ids)


def drawn(*rows):
    tokens = np.array([[*row, *[0] * (6 - len(row))] for row in rows])
    lengths = np.array([len(row) for row in rows])
    zeros = np.zeros(tokens.shape, np.float32)
    never = np.zeros(len(rows), bool)
    return jax.tree.map(jnp.asarray, Drawn(tokens, zeros, zeros, lengths, never, never))


def test_no_strings_no_watch():
    assert Stops.of((), decode, 3) is None


@pytest.mark.parametrize(
    ("string", "lengths"),
    [("ab", [2, 1, 3]), ("</x>", [5, None, None]), ("b", [2, 1, 2]), ("ba", [None, 2, 3]), ("z", [None] * 3)],
)
def test_the_token_that_completes_a_string_is_the_last(string, lengths):
    now = drawn([1, 2, 4, 5, 6], [3, 1], [4, 2, 3])
    stops = Stops.of((string, "never"), decode, 3)
    after = stops.cut(now, np.arange(3))
    np.testing.assert_array_equal(after.lengths, [a or b for a, b in zip(lengths, now.lengths, strict=True)])
    np.testing.assert_array_equal(stops.found, [length is not None for length in lengths])
    np.testing.assert_array_equal(after.ended, stops.found)


def test_how_often_one_looks_does_not_matter():
    tokens = [1, 4, 5, 6, 1, 1]
    stops = Stops.of(("x>",), decode, 1)
    for length in (1, 3):
        assert not stops.cut(drawn(tokens[:length]), np.array([0])).ended.any()
    late = stops.cut(drawn(tokens), np.array([0]))
    assert late.lengths.tolist() == [4]
    assert late.ended.tolist() == [True]


def test_only_those_asked_about_are_ended():
    stops = Stops.of(("a",), decode, 2)
    after = stops.cut(drawn([1, 2], [1, 2]), np.array([1]))
    np.testing.assert_array_equal(after.lengths, [2, 1])
    # a second look at what has ended changes nothing
    np.testing.assert_array_equal(stops.cut(after, np.array([1])).lengths, [2, 1])

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_rollout.decoding.decode import Drawn
from dovetail_rollout.decoding.stops import EVERY, Stops, first_stop

WORDS = ("", "a", "b", "ab", " ", "</x", ">")


def decode(ids):
    return "".join(WORDS[i] for i in ids)


def drawn(*rows):
    tokens = np.array([[*row, *[0] * (6 - len(row))] for row in rows])
    lengths = np.array([len(row) for row in rows])
    zeros = np.zeros(tokens.shape, np.float32)
    never = np.zeros(len(rows), bool)
    return jax.tree.map(jnp.asarray, Drawn(tokens, zeros, zeros, lengths, never, never, lengths))


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


def naive(tokens, strings, decode):
    """Return what a look at the whole text after every token finds."""
    texts = (decode(tokens[:count]) for count in range(1, len(tokens) + 1))
    return next((count for count, text in enumerate(texts, 1) if any(string in text for string in strings)), None)


def by_bytes(ids):
    """Decode as byte-level tokenizers do: letters of several bytes come in parts."""
    return bytes(ids).decode(errors="replace")


def with_stripped_space(ids):
    """Decode as sentencepiece does: a space at the beginning is left out."""
    return decode(ids).removeprefix(" ")


@pytest.mark.parametrize("letters", ["é日🦜ab", "ab"])
def test_a_window_finds_what_the_whole_text_holds(letters):
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(150):
        text = "".join(rng.choice(list(letters), size=60))
        start = int(rng.integers(0, 60))
        strings = (text[start : start + int(rng.integers(1, 9))], "never there")
        tokens = list(text.encode())
        seen = int(rng.integers(0, len(tokens)))
        expected = naive(tokens, strings, by_bytes)
        found = first_stop(tokens, strings, by_bytes)
        assert found == expected, (text, strings)
        hits += found is not None
        if expected is not None and expected > seen:
            assert first_stop(tokens, strings, by_bytes, seen) == expected
    assert hits == 150


def test_a_window_where_spaces_are_left_out_and_tokens_have_no_text():
    rng = np.random.default_rng(1)
    for _ in range(150):
        tokens = rng.choice(len(WORDS), size=80, p=[0.7, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05]).tolist()
        for strings in ((" a",), ("ab b", "</x>"), ("a ",)):
            assert first_stop(tokens, strings, with_stripped_space) == naive(tokens, strings, with_stripped_space)


def test_a_text_is_decoded_once_and_not_for_every_look():
    decoded = []

    def counted(ids):
        decoded.append(len(ids))
        return by_bytes(ids)

    tokens = list(b"abc " * 4000)
    for length in range(EVERY, len(tokens) + 1, EVERY):
        assert first_stop(tokens[:length], ("stop here",), counted, length - EVERY) is None
    assert sum(decoded) < 8 * len(tokens)

"""Stop strings, which end a completion by its text.

They are searched on the host every `EVERY` tokens, and tokens beyond one are dropped. The result is as if every token
had been checked, and no text goes through a compiled loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import jax
import numpy as np
from jaxtyping import Bool, Int

from dovetail_rollout.decoding.decode import Drawn

EVERY = 16
"""Steps between two checks of the text; tokens after a stop string are dropped."""
MARGIN = 8
"""Number of characters at the beginning of a decoded part that may differ from those of the whole text: part of a
character, or an omitted space."""


@attrs.define(kw_only=True)
class Stops:
    """Ends completions with the first token that makes their text contain one of `strings`; the token is kept.

    `found` says which completions were ended this way. The result does not depend on how often the text is checked.
    """

    strings: tuple[str, ...]
    decode: Callable[[Sequence[int]], str]
    found: Bool[np.ndarray, "seq"]
    seen: Int[np.ndarray, "seq"]

    @classmethod
    def of(cls, strings: tuple[str, ...], decode: Callable[[Sequence[int]], str], seqs: int) -> Stops | None:
        """Return the stop strings of so many completions, or None if there are none."""
        if not strings:
            return None
        return cls(strings=strings, decode=decode, found=np.zeros(seqs, bool), seen=np.zeros(seqs, int))

    @property
    def every(self) -> int:
        """Steps between two checks."""
        return EVERY

    def cut(self, drawn: Drawn, seqs: Int[np.ndarray, "seq"]) -> Drawn:
        """End those of the completions that now contain a stop string."""
        tokens, old, ended = (np.array(x) for x in jax.device_get((drawn.tokens, drawn.lengths, drawn.ended)))
        lengths = old.copy()
        for seq in seqs[~self.found[seqs]]:
            end = first_stop(tokens[seq, : old[seq]].tolist(), self.strings, self.decode, int(self.seen[seq]))
            self.seen[seq] = old[seq]
            if end is not None:
                lengths[seq], ended[seq], self.found[seq] = end, True, True
        if not self.found.any():
            return drawn
        return drawn._replace(
            lengths=jax.device_put(lengths, drawn.lengths.sharding), ended=jax.device_put(ended, drawn.ended.sharding)
        )


def first_stop(
    tokens: Sequence[int], strings: tuple[str, ...], decode: Callable[[Sequence[int]], str], seen: int = 0
) -> int | None:
    """Return the number of tokens at which a text first contains one of `strings`, or None.

    Only so much before each token is decoded as the longest string needs: a text is read once, not once for each check.

    Args:
        tokens: a completion, or its beginning.
        strings: the stop strings.
        decode: decodes ids to text; the text of an id may depend on a few ids before it, as for multi-byte characters.
        seen: number of tokens that are known not to contain a stop string.

    >>> first_stop([97, 98, 99], ("b",), lambda tokens: "".join(map(chr, tokens)))
    2
    """

    def contain(some: Sequence[int]) -> bool:
        text = decode(some)
        return any(string in text for string in strings)

    needed = max(map(len, strings)) + MARGIN
    for begin in range(seen, len(tokens), EVERY):
        start, end = _window(tokens, begin, needed, decode), min(begin + EVERY, len(tokens))
        if contain(tokens[start:end]):
            # the first letters of a window may not be those of the text, so that a hit is looked at once more
            for count in range(begin + 1, end + 1):
                if contain(tokens[start:count]) and contain(tokens[:count]):
                    return count
    return None


def _window(tokens: Sequence[int], end: int, needed: int, decode: Callable[[Sequence[int]], str]) -> int:
    """Return from where on the text up to a token has as many letters as needed, or 0."""
    size = EVERY
    while size < end and len(decode(tokens[end - size : end])) < needed:
        size *= 2
    return max(end - size, 0)

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
"""Steps between two checks of the text; what is drawn beyond a stop string is dropped."""


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
            end = self._end(tokens[seq].tolist(), int(self.seen[seq]), int(old[seq]))
            self.seen[seq] = old[seq]
            if end is not None:
                lengths[seq], ended[seq], self.found[seq] = end, True, True
        if not self.found.any():
            return drawn
        return drawn._replace(
            lengths=jax.device_put(lengths, drawn.lengths.sharding), ended=jax.device_put(ended, drawn.ended.sharding)
        )

    def _end(self, tokens: list[int], seen: int, length: int) -> int | None:
        """Return the number of tokens at which a stop string is first complete, if that is beyond `seen`."""
        if seen == length or not self._contains(tokens[:length]):
            return None
        return next(count for count in range(seen + 1, length + 1) if self._contains(tokens[:count]))

    def _contains(self, tokens: list[int]) -> bool:
        text = self.decode(tokens)
        return any(string in text for string in self.strings)

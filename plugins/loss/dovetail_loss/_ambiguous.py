"""Names that refer to different algorithms in different libraries."""

from __future__ import annotations

import attrs

from dovetail.registry import Renamed


@attrs.frozen
class Ambiguous(Renamed):
    """A name from other libraries that is refused, with an explanation of its possible meanings.

    Accepting it as an alias would silently choose the wrong algorithm for users of one of those libraries.

    Attributes:
        meanings: its meaning in each library, with the name to use instead.
    """

    meanings: str = attrs.field(kw_only=True)
    since: str = attrs.field(default="0.0", kw_only=True)
    removed_in: str = attrs.field(default="0.1", kw_only=True)

    def is_removed(self, version: str) -> bool:
        """Refuse it in every version."""
        return True

    def say(self, what: str, new: str, version: str) -> str:
        """Return the error message."""
        return f"{what} means different things in different libraries: {self.meanings}"


SUM_NORM = (
    "in verl the sum over a completion's tokens divided by a constant, averaged over completions, which is"
    " 'sequence_mean_token_scale'; in tunix the sum over all tokens divided by a constant, which is 'token_sum', or by"
    " the number of completions where no constant is given, which is 'sequence_mean_token_sum'. Write the one you mean"
)
SUM_NORM_SPELLINGS = tuple(
    Ambiguous(spelling, meanings=SUM_NORM) for spelling in ("seq_mean_token_sum_norm", "sequence_mean_token_sum_norm")
)

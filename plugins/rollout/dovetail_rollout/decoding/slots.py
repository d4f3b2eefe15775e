"""Which completion is in which slot: finished ones leave, waiting ones take their place, few ones move together."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
from jaxtyping import Int

SMALLEST = 16
"""Fewer slots than this are no faster."""

REFILL = 8
"""Slots are filled up when one in so many is empty, and keep a prompt together while one in REFILL stays empty."""

NONE = np.array([], int)


@attrs.frozen(kw_only=True, eq=False)
class Layout:
    """Slots in rows: those of a row show the same prompt, whose keys and values they share.

    Attributes:
        prompts: which prompt each row shows.
        seqs: which completion each slot holds, -1 for none; completion s answers prompt s // samples.
    """

    prompts: Int[np.ndarray, "row"]
    seqs: Int[np.ndarray, "row width"]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and slots of a row."""
        return self.seqs.shape

    @property
    def held(self) -> Int[np.ndarray, "seq"]:
        """The completions in the slots."""
        return self.seqs[self.seqs >= 0]

    def find(self, seqs: Int[np.ndarray, "row width"]) -> Int[np.ndarray, "slot"]:
        """Return in which slot each of these completions is, -1 for those in none."""
        slot = {int(seq): number for number, seq in enumerate(self.seqs.ravel()) if seq >= 0}
        return np.array([slot.get(int(seq), -1) for seq in seqs.ravel()], np.int32)


@attrs.frozen(kw_only=True)
class Schedule:
    """The layouts of one call: `prompts` times `samples` completions, at most `slots` of them at a time."""

    prompts: int
    samples: int
    slots: int
    shrink: bool

    @property
    def together(self) -> bool:
        """Whether all completions fit at once, so that none waits and all are equally long until they end."""
        return self.slots >= self.prompts * self.samples

    def first(self, waiting: Int[np.ndarray, "seq"]) -> Layout:
        """Return the layout to begin with."""
        width = min(self.samples, self.slots)
        rows = self.prompts if self.together else self.slots // width
        return self._filled(NONE, waiting, rows, width)

    def moves(self, layout: Layout, going: Int[np.ndarray, "seq"], waiting: Int[np.ndarray, "seq"]) -> Iterator[Layout]:
        """Yield the layouts to move to, one after another, the last one to go on with; none that is not worth its copy.

        `going` are those of its completions that have not ended, `waiting` those that are yet to be begun. The number
        of slots is halved as often as need be, and never skips a half: so there is one move to compile for each.
        """
        if len(waiting):
            if (layout.seqs.size - len(going)) * REFILL >= layout.seqs.size:
                yield self._refilled(going, waiting)
            return
        for shape in self._smaller(*layout.shape):
            packed = _pack(going, self.samples, *shape)
            if packed is None:
                return
            yield packed

    def enough(self, layout: Layout, going: int, waiting: int) -> int:
        """Return how many completions going on make it worth asking again for the next layout."""
        if waiting:
            return max(0, going - max(1, layout.seqs.size // REFILL))
        smaller = next(self._smaller(*layout.shape), None)
        if smaller is None:
            return 0
        # They may fit into the smaller shape only once there are fewer: then ask now and again.
        fits = smaller[0] * smaller[1]
        return fits if going > fits else max(0, going - max(1, fits // REFILL))

    def _smaller(self, rows: int, width: int) -> Iterator[tuple[int, int]]:
        """Yield the shapes with half as many slots, a quarter, ...: first fewer slots a row, then fewer rows."""
        while self.shrink and rows * width > SMALLEST:
            rows, width = (rows, -(-width // 2)) if width > 1 else (-(-rows // 2), 1)
            yield rows, width

    def _refilled(self, going: Int[np.ndarray, "seq"], waiting: Int[np.ndarray, "seq"]) -> Layout:
        """Fill the slots up, with rows as wide as leave few of them empty."""
        width = min(self.samples, self.slots)
        while True:
            rows = self.slots // width
            if _pack(going, self.samples, rows, width) is not None:
                filled = self._filled(going, waiting, rows, width)
                wanted = min(self.slots, len(going) + len(waiting))
                if width == 1 or (wanted - len(filled.held)) * REFILL <= wanted:
                    return filled
            width = -(-width // 2)

    def _filled(self, going: Int[np.ndarray, "seq"], waiting: Int[np.ndarray, "seq"], rows: int, width: int) -> Layout:
        """Pack those that go on, then those that wait, in order, as far as there is room."""
        layout = _pack(going, self.samples, rows, width)
        assert layout is not None, "what went on fits"
        prompts, seqs = layout.prompts.copy(), layout.seqs.copy()
        used = int((seqs >= 0).any(axis=1).sum())
        room: dict[int, list[int]] = {}
        for row in range(used):
            room.setdefault(int(prompts[row]), []).extend([row] * int((seqs[row] < 0).sum()))
        for seq in waiting:
            prompt = seq // self.samples
            if not room.get(prompt):
                if used == rows:
                    continue
                prompts[used] = prompt
                room[prompt] = [used] * width
                used += 1
            row = room[prompt].pop(0)
            seqs[row, int((seqs[row] >= 0).sum())] = seq
        return Layout(prompts=prompts, seqs=seqs)


def _pack(seqs: Int[np.ndarray, "seq"], samples: int, rows: int, width: int) -> Layout | None:
    """Put completions into as few rows as there can be, or return None if there are not that many.

    >>> _pack(np.array([0, 1, 2, 5]), samples=4, rows=3, width=2)
    Layout(prompts=array([0, 0, 1]), seqs=array([[ 0,  1],
           [ 2, -1],
           [ 5, -1]]))
    >>> _pack(np.array([0, 1, 2, 5]), samples=4, rows=2, width=2) is None
    True
    """
    grid = np.full((rows, width), -1)
    prompts = np.zeros(rows, int)
    row, column = -1, width
    for seq in np.sort(seqs):
        if column == width or seq // samples != prompts[row]:
            row, column = row + 1, 0
            if row == rows:
                return None
            prompts[row] = seq // samples
        grid[row, column] = seq
        column += 1
    return Layout(prompts=prompts, seqs=grid)

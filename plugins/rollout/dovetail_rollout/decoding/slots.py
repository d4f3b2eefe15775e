"""Assigns completions to slots: finished ones leave, waiting ones take their slots, the last ones move together.

The host decides this a few times per call; in between, a compiled loop samples until the decision may change. The slots
of a row share the keys and values of a prompt. Rows stay as wide as possible, because sharing saves more than packing:
on two CPU cores, half of the slots without sharing cost 0.84 of all slots with it, and a quarter of the slots in the
same rows 0.3. So a queue with half of the slots is not faster than all completions at once, but needs less memory.
Completions that may become longer than their prompts are packed into narrow rows: with lengths around 64 and up to 512
tokens, rows of two instead of four took a seventh off the time of sampling, and fewer than 16 slots a fifth.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
from jaxtyping import Int

SMALLEST, SMALLEST_LONG = 16, 2
"""The least number of slots, by default and for long completions, which repay the programs for fewer."""

REFILL = 8
"""Slots are refilled when one in this many is empty, and prompts are kept together if no more than that stay empty."""

NONE = np.array([], int)


@attrs.frozen(kw_only=True, eq=False)
class Layout:
    """Slots in rows: the slots of a row have the same prompt and share its keys and values.

    Attributes:
        prompts: which prompt each row has.
        seqs: which completion each slot holds, -1 for none; completion s answers prompt s // samples.
    """

    prompts: Int[np.ndarray, "row"]
    seqs: Int[np.ndarray, "row width"]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and of slots in each."""
        return self.seqs.shape

    @property
    def held(self) -> Int[np.ndarray, "seq"]:
        """The completions in the slots."""
        return self.seqs[self.seqs >= 0]

    def seqs_or(self, none: int) -> Int[np.ndarray, "slot"]:
        """Return the completion in each slot, and a number for none in those that are empty."""
        return np.where(self.seqs < 0, none, self.seqs).ravel().astype(np.int32)

    def find(self, seqs: Int[np.ndarray, "row width"]) -> Int[np.ndarray, "slot"]:
        """Return the slot of each of these completions, -1 for those without one."""
        slot = {int(seq): number for number, seq in enumerate(self.seqs.ravel()) if seq >= 0}
        return np.array([slot.get(int(seq), -1) for seq in seqs.ravel()], np.int32)


@attrs.frozen(kw_only=True)
class Schedule:
    """The layouts of one call: `prompts` times `samples` completions, with at most `slots` of them at a time.

    With `halvings` = 2 a layout has a quarter of the slots of the one before, instead of a half. `long` is for
    completions that take many steps and may become longer than their prompts: after the first move rows have at most
    two slots, since the remaining completions of several prompts fill such rows better, and there may be fewer slots.
    """

    prompts: int
    samples: int
    slots: int
    shrink: bool
    halvings: int = 1
    long: bool = False

    @property
    def together(self) -> bool:
        """Whether all completions fit at once: then none waits, and all have the same length until they end."""
        return self.slots >= self.prompts * self.samples

    def first(self, waiting: Int[np.ndarray, "seq"]) -> Layout:
        """Return the first layout."""
        width = min(self.samples, self.slots)
        rows = self.prompts if self.together else self.slots // width
        return self._filled(NONE, waiting, rows, width)

    def moves(self, layout: Layout, going: Int[np.ndarray, "seq"], waiting: Int[np.ndarray, "seq"]) -> Iterator[Layout]:
        """Yield the layouts to move through, of which the last is used; nothing if a move is not worth its copy.

        `going` are the completions of the layout that have not ended, `waiting` those that have not begun. The number
        of slots is halved one step at a time, so that there is only one move to compile for each number.
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
        """Return the number of unfinished completions at which it is worth asking for the next layout."""
        if waiting:
            return max(0, going - max(1, layout.seqs.size // REFILL))
        smaller = next(self._smaller(*layout.shape), None)
        if smaller is None:
            return 0
        # They may not fit into the smaller shape before there are fewer still: ask again now and then.
        fits = smaller[0] * smaller[1]
        return fits if going > fits else max(0, going - max(1, fits // REFILL))

    def _smaller(self, rows: int, width: int) -> Iterator[tuple[int, int]]:
        """Yield the shapes with a half of the slots, a quarter, ...: first fewer slots per row, then fewer rows."""
        while self.shrink and rows * width > (SMALLEST_LONG if self.long else SMALLEST):
            for _ in range(self.halvings):
                rows, width = self._half(rows, width)
            yield rows, width

    def _half(self, rows: int, width: int) -> tuple[int, int]:
        if self.long and width > 2:
            return -(-rows * width // 4), 2
        return (rows, -(-width // 2)) if width > 1 else (-(-rows // 2), 1)

    def _refilled(self, going: Int[np.ndarray, "seq"], waiting: Int[np.ndarray, "seq"]) -> Layout:
        """Refill the slots, with the widest rows that leave few of them empty."""
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
        """Pack the unfinished completions, then the waiting ones in order, as far as there is room."""
        layout = _pack(going, self.samples, rows, width)
        assert layout is not None, "what was decoded before fits"
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
    """Put completions into as few rows as possible, or return None if there are not enough rows.

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

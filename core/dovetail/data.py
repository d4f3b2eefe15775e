"""Examples made on access, and endless iteration over them in shuffled order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from dovetail.errors import DataError
from dovetail.protocols import Example

if TYPE_CHECKING:
    import grain


T = TypeVar("T")


@attrs.frozen
class View(Sequence[T], Generic[T]):
    """A read-only sequence whose item `i` is `make(source[i])`, computed on access.

    The source is asked for single items only, which is what a lazy one can give.

    >>> squares = View(range(2, 9), lambda row: row * row)
    >>> len(squares), squares[0], squares[-1], list(squares[1:3])
    (7, 4, 64, [9, 16])
    """

    source: Sequence[Any]
    make: Callable[[Any], T]

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return View(range(len(self))[index], self.__getitem__)
        return self.make(self.source[index])


def prompt_stream(examples: Sequence[Example], seed: int, batch: int) -> grain.DatasetIterator[list[Example]]:
    """Return an endless iterator over batches of shuffled examples.

    Each epoch contains every example once, in a new order; a batch may cross from one epoch into the next, so that all
    have the same size. `get_state()` returns a small dict of JSON values. `set_state` with that dict, on a stream made
    with the same arguments, continues with the next batch, in constant time.

    Args:
        examples: read by index, in this process and thread, when a batch is requested.
        seed: any integer; determines the order of every epoch.
        batch: the number of examples in a batch.

    Raises:
        DataError: if there are no examples.

    >>> stream = prompt_stream([{"prompt": letter} for letter in "abcde"], seed=0, batch=4)
    >>> first = next(stream)
    >>> sorted(example["prompt"] for example in [*first, *next(stream)][:5])
    ['a', 'b', 'c', 'd', 'e']
    """
    import grain

    if not len(examples):
        raise DataError("there are no examples to train on")
    endless = grain.MapDataset.source(examples).shuffle(seed=seed % 2**32).repeat()
    # an endless dataset has no remainder; to count one, grain would round the length 2^63 - 1 up and overflow
    dataset = endless.batch(batch, drop_remainder=True, batch_fn=list)
    # Prompts are short: prefetching in threads would cost more than it saves.
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)))


def at_random(examples: Sequence[Example], seed: int, start: int, count: int) -> list[Example]:
    """Return `count` examples of the endless shuffled order from position `start` on, without iterating up to it.

    >>> [e["prompt"] for e in at_random([{"prompt": letter} for letter in "abc"], seed=0, start=3, count=3)] != []
    True
    """
    import grain

    dataset = grain.MapDataset.source(examples).shuffle(seed=seed % 2**32).repeat()
    found: Any = [dataset[index] for index in range(start, start + count)]
    return found

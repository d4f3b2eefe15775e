"""Examples made on access, and the order in which they are used: shuffled without end, or as they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from dovetail.errors import DataError
from dovetail.protocols import Example

if TYPE_CHECKING:
    import grain


T = TypeVar("T")


@attrs.frozen
class View(Sequence[T], Generic[T]):
    """Item `i` is `make(source[i])`.

    >>> squares = View(range(2, 9), lambda row: row * row)
    >>> len(squares), squares[0], squares[-1], list(squares[1:3])
    (7, 4, 64, [9, 16])
    """

    source: Sequence[Any]
    make: Callable[[Any], T]

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Any) -> Any:
        found = self.source[index]
        return View(found, self.make) if isinstance(index, slice) else self.make(found)


def prompt_stream(examples: Sequence[Example], seed: int, batch: int) -> grain.DatasetIterator[list[Example]]:
    """Return an endless iterator over batches of shuffled examples.

    Each epoch shows every example once, in an order of its own; a batch may cross from one epoch into the next, so
    that each has the same size. `get_state()` is a small dict of JSON values, and `set_state(it)` on a stream made
    with the same arguments goes on with the very next batch, at no cost that depends on how far it is.

    Args:
        examples: read by index, in this process and thread, when a batch is asked for.
        seed: decides all orders; any integer.
        batch: examples in a batch.

    Raises:
        DataError: if there is no example.

    >>> stream = prompt_stream([{"prompt": letter} for letter in "abcde"], seed=0, batch=4)
    >>> first = next(stream)
    >>> sorted(example["prompt"] for example in [*first, *next(stream)][:5])
    ['a', 'b', 'c', 'd', 'e']
    """
    import grain

    if not len(examples):
        raise DataError("there are no examples to train on")
    endless = grain.MapDataset.source(examples).shuffle(seed=seed % 2**32).repeat()
    # what never ends has no remainder; counting it, grain would round the length 2^63 - 1 up beyond the integers it has
    dataset = endless.batch(batch, drop_remainder=True, batch_fn=list)
    # Prompts are short: reading ahead in threads would cost more than it hides.
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)))


def at_random(examples: Sequence[Example], seed: int, start: int, count: int) -> list[Example]:
    """Return examples `start` to `start + count` of the endless shuffled order, without going through those before.

    >>> [e["prompt"] for e in at_random([{"prompt": letter} for letter in "abc"], seed=0, start=3, count=3)] != []
    True
    """
    import grain

    dataset = grain.MapDataset.source(examples).shuffle(seed=seed % 2**32).repeat()
    found: Any = [dataset[index] for index in range(start, start + count)]
    return found


def in_order(examples: Sequence[Example], batch: int, limit: int | None = None) -> Iterator[list[Example]]:
    """Yield the first `limit` examples (all, if None) in batches; the last one may be short.

    >>> [len(chunk) for chunk in in_order([{"prompt": "a"}] * 7, batch=3)]
    [3, 3, 1]
    """
    count = len(examples) if limit is None else min(limit, len(examples))
    for start in range(0, count, batch):
        yield [examples[i] for i in range(start, min(start + batch, count))]

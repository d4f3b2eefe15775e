"""A sequence whose items are made on access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import attrs

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

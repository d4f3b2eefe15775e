"""The roles in which completions are written (`role_ids`): numbers for the values of a dataset column."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from jaxtyping import Int

from dovetail.errors import DataError
from dovetail.protocols import Example


@attrs.frozen
class Speakers:
    """The values of a column, in an order that depends only on the values; without a column, one role."""

    column: str | None = None
    names: tuple[str | int, ...] = ("",)

    @property
    def count(self) -> int:
        """The number of roles."""
        return len(self.names)

    @classmethod
    def of(cls, examples: Sequence[Example], column: str) -> Speakers:
        """Return the roles of all examples, so that a role's number does not depend on when it first occurs.

        >>> roles = Speakers.of([{"role": "white"}, {"role": "black"}, {"role": "white"}], "role")
        >>> roles.names, roles.ids([{"role": "white"}]).tolist()
        (('black', 'white'), [1])

        Raises:
            DataError: if a value is neither a text nor a whole number.
        """
        found = set()
        for index, example in enumerate(examples):
            value = example[column]
            if not isinstance(value, str | int):
                raise DataError(
                    f"the column '{column}' of train example {index} is {value!r}; a role is a text or a whole number"
                )
            found.add(value)
        return cls(column, tuple(sorted(found, key=lambda value: (isinstance(value, str), value))))

    def ids(self, examples: Sequence[Example]) -> Int[np.ndarray, "seq"]:
        """Return the number of each example's role."""
        if self.column is None:
            return np.zeros(len(examples), np.int32)
        numbers = {name: number for number, name in enumerate(self.names)}
        return np.array([numbers[example[self.column]] for example in examples], np.int32)

"""Records of a parquet file, kept in memory as Arrow columns and turned into Python values one row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from dovetail.errors import DataError
from dovetail.extras import needs

Record = dict[str, Any]

BATCH = 1024
"""Rows turned into Python values at a time while scanning."""


@attrs.define
class Parquet(Sequence[Record]):
    """The rows of a parquet file; `scan` must run to its end before records are accessed by index."""

    path: Path
    _table: Any = attrs.field(default=None, init=False, repr=False)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def scan(self) -> Iterator[tuple[str, Record]]:
        """Yield each record with its place (`file: row n`), in order, and keep the columns.

        Raises:
            DataError: if pyarrow is not installed, or cannot read the file.
        """
        try:
            import pyarrow as arrow
            from pyarrow.parquet import ParquetFile
        except ImportError as error:
            raise DataError(f"{self.path}: " + needs("reading parquet", "pyarrow", "parquet")) from error
        row, batches = 0, []
        try:
            with ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=BATCH):
                    batches.append(batch)
                    for record in batch.to_pylist():
                        row += 1
                        yield f"{self.path}: row {row}", record
                self._table = arrow.Table.from_batches(batches, schema=file.schema_arrow).combine_chunks()
        except arrow.ArrowException as error:
            raise DataError(f"{self.path}: not a valid parquet file: {str(error).splitlines()[0]}") from error

    def __len__(self) -> int:
        return self._table.num_rows

    def __getitem__(self, index: Any) -> Any:
        return self._table.slice(index, 1).to_pylist()[0]

"""Records of a data set that the `datasets` library reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import attrs

from dovetail.errors import ConfigError, DataError, DovetailError, listing, nearest
from dovetail.extras import needs

Record = dict[str, Any]

SAVED: Final = ("state.json", "dataset_dict.json")
"""What a folder written by `save_to_disk` has."""
FORMATS: Final = ("arrow", "csv", "json", "parquet", "text")


@attrs.define(kw_only=True)
class DatasetSplit(Sequence[Record]):
    """One split; see task `dataset`. It is opened on first use, and kept as Arrow columns, or as a list if streamed."""

    path: str
    config: str | None
    files: Mapping[str, str]
    split: str
    select: tuple[str, ...]
    rename: Mapping[str, str]
    streaming: bool
    limit: int | None
    _rows: Any = attrs.field(default=None, init=False, repr=False)

    @property
    def name(self) -> str:
        """The data set and the split."""
        return f"{self.path} ({self.split})"

    def scan(self) -> Iterator[tuple[str, Record]]:
        """Yield each record with its place, in order.

        Raises:
            DataError: if there is no such data set, split or column.
        """
        if self._rows is None:
            with self._in_one_line():
                self._rows = self._opened()
        for number, record in enumerate(self._rows):
            yield f"{self.name}: row {number}", record

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def _opened(self) -> Sequence[Record]:
        found = self._loaded()
        if self.select:
            self._there(found, self.select, "select")
            found = found.select_columns(list(self.select))
        if self.rename:
            self._check_renamed(self._there(found, self.rename, "rename"))
            found = found.rename_columns(dict(self.rename))
        if self.streaming:
            return list(islice(found, self.limit))
        return found if self.limit is None else found.select(range(min(self.limit, len(found))))

    def _there(self, found: Any, names: Iterable[str], setting: str) -> list[str]:
        """Return the columns of a split, and check that these are among them."""
        columns: list[str] = found.column_names or list(next(iter(found), {}))
        for name in names:
            if name not in columns:
                raise DataError(
                    f"{self.name} has no column {name!r} (task.dataset.{setting}).{nearest(name, columns)} Columns:"
                    f" {listing(columns)}"
                )
        return columns

    def _check_renamed(self, columns: Sequence[str]) -> None:
        """Refuse two columns of one name: the library keeps either of them without a word."""
        renamed = [self.rename.get(name, name) for name in columns]
        if again := next((name for name in renamed if renamed.count(name) > 1), None):
            raise DataError(
                f"{self.name} would have two columns {again!r} (task.dataset.rename); take another name, or leave one"
                " of them out with task.dataset.select"
            )

    @contextmanager
    def _in_one_line(self) -> Iterator[None]:
        """Say what could not be read: what the library raises is of many kinds, and says it in its first line."""
        library = datasets_library()
        try:
            yield
        except DovetailError:
            raise
        except (OSError, ValueError, RuntimeError, library.exceptions.DatasetsError) as error:
            raise DataError(f"{self.name}: {(str(error).splitlines() or [type(error).__name__])[0]}") from error

    def _loaded(self) -> Any:
        library = datasets_library()
        folder = Path(self.path).expanduser()
        if any((folder / name).is_file() for name in SAVED):
            return self._of_saved(library.load_from_disk(str(folder)))
        where: dict[str, Any] = {"path": str(folder)} if folder.exists() else self._elsewhere()
        return library.load_dataset(**where, name=self.config, split=self.split, streaming=self.streaming)

    def _elsewhere(self) -> dict[str, Any]:
        """Return a format with its files, or a name on the hub with the commit that it refers to."""
        from dovetail_model.source.hub import HubName, commit_of

        if self.path in FORMATS:
            files = {split: str(Path(file).expanduser()) for split, file in self.files.items()}
            if not files:
                raise ConfigError(
                    f"task.dataset.path = '{self.path}' is a format: name the files in task.dataset.files"
                )
            return {"path": self.path, "data_files": files}
        name = HubName.parse(self.path)
        if name is None:
            raise DataError(
                f"'{self.path}' is neither a folder here, nor OWNER/NAME on the hub, nor one of {listing(FORMATS)}"
            )
        return {"path": name.repo, "revision": commit_of(name, "dataset")}

    def _of_saved(self, saved: Any) -> Any:
        if not isinstance(saved, Mapping):
            return saved
        if self.split not in saved:
            raise DataError(
                f"{self.path} has no split {self.split!r}.{nearest(self.split, saved)} Splits: {listing(saved)}"
            )
        return saved[self.split]


def datasets_library() -> Any:
    """Return the `datasets` package.

    Raises:
        ConfigError: if it is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(needs("task dataset", "the datasets library", "datasets")) from error
    return datasets

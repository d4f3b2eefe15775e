"""Tool `search`: passages of a local corpus, ranked by BM25."""

from __future__ import annotations

import functools
import re
import sqlite3
from typing import Annotated, Final

import attrs
from annotated_types import Ge

from dovetail.ranges import in_range
from dovetail.registry import declares
from dovetail_agent._passages import passages

_WORD: Final = re.compile(r"\w+")
TERMS: Final = 32
"""Words of a query that count; the others are left out."""


@declares(settings={"corpus": "local_search"}, files=("corpus",))
@attrs.frozen(kw_only=True)
class Search:
    """Search a corpus for the passages that fit a query best.

    A passage's rank is Okapi BM25 with k₁ = 1.2 and b = 0.75, as sqlite's FTS5 computes it, over the words of the
    query, any of which may occur; words are stripped of case, accents and English endings (Porter). Of equal ranks the
    earlier passage comes first. Nothing leaves this machine. The corpus is read once in each process.

    Args:
        query: words to look for.
        limit: how many passages; if nothing is said, as many as there may be.
        corpus: a `.jsonl` file whose records have a `text` and maybe a `title`; another file, with a passage in each
            line; a folder of `.jsonl` and `.txt` files; or the name of a task that has passages.
        most: passages of a result at most.
        characters: of a passage; a longer one is cut.

    Returns:
        The passages, numbered, one in each line.

    Raises:
        DataError: when built, if there is no such corpus, or it cannot be read; with file and line.

    >>> Search(corpus="local_search", most=1)("Where was Vubalu born?", None)
    '[1] Vubalu was born in Ganufi.'
    """

    corpus: str
    most: Annotated[int, Ge(1)] = attrs.field(default=3, validator=in_range)
    characters: Annotated[int, Ge(1)] = attrs.field(default=500, validator=in_range)

    def __attrs_post_init__(self) -> None:
        """Read the corpus."""
        index(self.corpus)

    def __call__(self, query: str, limit: int | None) -> str:
        """Return what is found."""
        words = _WORD.findall(query)[:TERMS]
        count = max(1, min(self.most if limit is None else limit, self.most))
        found = index(self.corpus).execute(
            "SELECT title, text FROM passages WHERE passages MATCH ? ORDER BY rank, rowid LIMIT ?",
            (" OR ".join(f'"{word}"' for word in words) or '""', count),
        )
        said = [self._passage(number, *row) for number, row in enumerate(found, start=1)]
        return "\n".join(said) or "no passage has any of these words"

    def _passage(self, number: int, title: str, text: str) -> str:
        said = " ".join((f"{title}: {text}" if title else text).split())
        return f"[{number}] {said[: self.characters]}{'...' * (len(said) > self.characters)}"


@functools.cache
def index(corpus: str) -> sqlite3.Connection:
    """Return the index of a corpus, in memory; the same one at every call."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute("CREATE VIRTUAL TABLE passages USING fts5(title, text, tokenize = 'porter unicode61')")
    connection.executemany("INSERT INTO passages VALUES (?, ?)", passages(corpus))
    return connection

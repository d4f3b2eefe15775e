"""Files of blocks, each with a header of JSON values, a body of bytes, and a checksum."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import RunError
from dovetail.run.files import json_bytes


def block(head: Mapping[str, Any], body: bytes) -> bytes:
    """Return a block: a line `CHECKSUM BYTES HEAD`, then BYTES bytes, then a line break.

    The checksum is the CRC-32 of header and body.
    """
    said = json_bytes(head)
    return b"%08x %d %s\n%s\n" % (zlib.crc32(body, zlib.crc32(said)), len(body), said, body)


def blocks(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the header and body of each block of a file.

    Raises:
        RunError: at an incomplete or damaged block, with its number.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline():
            number += 1
            checksum, size, said = (*line.rstrip(b"\n").split(b" ", 2), b"", b"")[:3]
            body = file.read(int(size) + 1) if _fits(size, os.fstat(file.fileno()).st_size - file.tell()) else b""
            found = b"%08x" % zlib.crc32(body[:-1], zlib.crc32(said))
            if not body.endswith(b"\n") or found != checksum:
                raise RunError(
                    f"'{path}': block {number} is not whole: it was being written when the run was killed, or the file"
                    " was changed since; resume the run, which writes it again, or take another copy"
                )
            yield json.loads(said), body[:-1]


def _fits(size: bytes, left: int) -> bool:
    """Return whether a size is a number less than the bytes that are left; a damaged one may have any digits."""
    return size.isdigit() and len(size) <= len(str(left)) and int(size) < left

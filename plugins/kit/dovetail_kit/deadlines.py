"""A time limit for the whole answer of an HTTP server: headers, sizes of chunks and body."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any


class _Reader(io.RawIOBase):
    """What a socket receives, until a time of `time.monotonic`; that of a socket itself is for each part anew."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock, self._end = sock, end
        self._file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Socket:
    """A socket whose files end at a time."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock, self._end = sock, end

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._end))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def limit(connection: http.client.HTTPConnection, end: float) -> None:
    """Have answers of a connection raise TimeoutError at a time of `time.monotonic`, however slowly they trickle."""
    connection.sock = _Socket(connection.sock, end)  # pyright: ignore[reportAttributeAccessIssue]

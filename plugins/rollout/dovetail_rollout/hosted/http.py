"""JSON over HTTP, from many threads, and cut off at once when there is nobody to wait for."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import attrs

from dovetail.errors import ConfigError

BROKEN: Final = (OSError, http.client.HTTPException)
"""What a call raises when there is no connection, or it breaks."""


class Refused(Exception):
    """An answer with a status other than 200; `text` is what it says."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"status {status}: {text}")
        self.status = status
        self.text = text


def _parts(self: JsonClient) -> SplitResult:
    parts = urlsplit(self.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"url = {self.url!r}; it must look like 'http://host:8000'")
    return parts


@attrs.frozen(eq=False)
class JsonClient:
    """Calls one server, each time over a connection of its own.

    The environment variable `key_variable` holds a key to be sent along, if there is one.
    """

    url: str
    key_variable: str
    _parts: SplitResult = attrs.field(init=False, repr=False, default=attrs.Factory(_parts, takes_self=True))
    _waiting: set[http.client.HTTPConnection] = attrs.field(factory=set, init=False, repr=False)
    _lock: Any = attrs.field(factory=threading.Lock, init=False, repr=False)
    _closed: threading.Event = attrs.field(factory=threading.Event, init=False, repr=False)

    def get(self, path: str, *, timeout: float) -> Any:
        """Return the answer to a GET request; `timeout` is in seconds."""
        with self._answer("GET", path, None, timeout) as answer:
            return _json(answer.read())

    def post(self, path: str, body: Any = None, *, timeout: float | None = None) -> Any:
        """Return the answer to a POST request, waiting as long as it takes or `timeout` seconds for a sign of life.

        Raises:
            Refused: for a status other than 200.
            OSError, HTTPException: if there is no connection, or it breaks, or somebody calls `close`.
        """
        with self._answer("POST", path, body, timeout) as answer:
            return _json(answer.read())

    def stream(self, path: str, body: Any) -> Generator[Any]:
        """Yield the parts of an answer as they come; who stops listening closes the connection. Raises as `post`."""
        with self._answer("POST", path, body, None) as answer:
            for line in answer:
                if line.startswith(b"data: ") and line != b"data: [DONE]\n":
                    yield json.loads(line[len(b"data: ") :])

    def close(self) -> None:
        """Break all connections on which somebody waits, and make no more."""
        with self._lock:
            self._closed.set()
            for connection in self._waiting:
                if connection.sock is not None:
                    with suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _answer(self, method: str, path: str, body: Any, timeout: float | None) -> Iterator[http.client.HTTPResponse]:
        parts = self._parts
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        assert parts.hostname is not None, "checked when it was made"
        connection = kind(parts.hostname, parts.port, timeout=timeout)
        with self._lock:
            self._waiting.add(connection)
        try:
            connection.connect()
            if self._closed.is_set():
                raise ConnectionAbortedError("the client is closed")
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, parts.path.rstrip("/") + path, data, self._headers())
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise Refused(answer.status, _message(answer.read()))
            yield answer
        finally:
            with self._lock:
                self._waiting.discard(connection)
            connection.close()

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        key = os.environ.get(self.key_variable)
        return headers if key is None else {**headers, "Authorization": f"Bearer {key}"}


def _json(data: bytes) -> Any:
    """Read an answer; some are plain words.

    >>> _json(b'{"a": 1}'), _json(b""), _json(b"Success: done")
    ({'a': 1}, None, 'Success: done')
    """
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data.decode(errors="replace")


def _message(data: bytes) -> str:
    """Return what an error says, on one line.

    >>> _message(b'{"error": {"message": "too long"}}'), _message(b'{"detail": "x"}'), _message(b"no")
    ('too long', 'x', 'no')
    """
    found = _json(data)
    if isinstance(found, dict):
        inner = found.get("error", found)
        found = inner.get("message", inner.get("detail", inner)) if isinstance(inner, dict) else inner
    return " ".join(str(found).split())

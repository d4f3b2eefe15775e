"""JSON over HTTP from many threads, whose pending calls can be cut off at once."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import attrs

from dovetail.errors import ConfigError
from dovetail_kit.deadlines import limit

BROKEN: Final = (OSError, http.client.HTTPException)
"""What a call raises if it cannot connect or the connection breaks."""


LARGEST: Final = 1 << 30
"""Bytes of an answer, and of a line of one that comes in events."""
LARGEST_ERROR: Final = 100_000
PART: Final = 1 << 16


class TooLarge(OSError):
    """An answer that is larger than any can be."""


class Late(OSError):
    """An answer that did not come, or not all of it, in the time that the caller gives it."""


class Refused(Exception):
    """An answer with a status other than 200; `text` is its message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"status {status}: {text}")
        self.status = status
        self.text = text


@attrs.frozen
class _Answer:
    """The body of an answer."""

    response: http.client.HTTPResponse

    def read(self) -> bytes:
        """Return all of it."""
        parts, size, length = list[bytes](), 0, self.response.length
        while length is None or size < length:
            most = PART if length is None else min(PART, length - size)
            part = self.response.read1(most)
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > LARGEST:
                raise TooLarge(f"an answer of more than {LARGEST:,} bytes")
        if length is not None and size < length:
            raise http.client.IncompleteRead(b"".join(parts), length - size)
        return b"".join(parts)

    def readline(self) -> bytes:
        """Return the next line; empty at the end."""
        return self.response.readline(LARGEST)


def _address(self: JsonClient) -> SplitResult:
    address = urlsplit(self.url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigError(f"url = {self.url!r}; it must look like 'http://host:8000'")
    return address


@attrs.frozen(eq=False)
class JsonClient:
    """Calls one server, with a new connection for each call; an answer that points elsewhere is not followed.

    If the environment variable `key_variable` is set, it holds a key to send; `key` is one itself.
    """

    url: str
    key_variable: str
    key: str | None = attrs.field(default=None, repr=False)
    _address: SplitResult = attrs.field(init=False, repr=False, default=attrs.Factory(_address, takes_self=True))
    _waiting: set[socket.socket] = attrs.field(factory=set, init=False, repr=False)
    _lock: Any = attrs.field(factory=threading.Lock, init=False, repr=False)
    _closed: threading.Event = attrs.field(factory=threading.Event, init=False, repr=False)

    def anew(self) -> JsonClient:
        """Return another client of the same server, with connections of its own."""
        return JsonClient(self.url, self.key_variable, self.key)

    def get(self, path: str, *, timeout: float) -> Any:
        """Return the answer to a GET request; `timeout` is in seconds, for all of it."""
        with self._answer("GET", path, None, timeout) as answer:
            return _json(answer.read())

    def post(self, path: str, body: Any = None, *, timeout: float | None = None) -> Any:
        """Return the answer to a POST request; `timeout` is in seconds, for all of it, and None is any.

        Raises:
            Refused: for a status other than 200.
            Late: if it takes longer than `timeout`.
            OSError, HTTPException: if it cannot connect, the connection breaks, or `close` is called.
        """
        with self._answer("POST", path, body, timeout) as answer:
            return _json(answer.read())

    def stream(self, path: str, body: Any, *, timeout: float | None = None) -> Generator[Any]:
        """Yield the events of an answer as they come; closing the generator closes the connection. Raises as `post`."""
        with self._answer("POST", path, body, timeout) as answer:
            while (line := answer.readline()) != b"data: [DONE]\n":
                if not line.endswith(b"\n"):  # a connection that is shut down does not fail, but has no more lines
                    raise ConnectionResetError("an answer without its end")
                if line.startswith(b"data: "):
                    event = _json(line[len(b"data: ") :])
                    if not isinstance(event, dict):
                        raise Refused(200, f"an event that is no JSON object: {event!r:.100}")
                    yield event

    def pause(self, seconds: float) -> None:
        """Wait, or until `close` is called."""
        self._closed.wait(seconds)

    def close(self) -> None:
        """Break all connections that are waiting for an answer, and make no new ones."""
        with self._lock:
            self._closed.set()
            for waiting in self._waiting:
                with suppress(OSError):
                    waiting.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _answer(self, method: str, path: str, body: Any, timeout: float | None) -> Iterator[_Answer]:
        address, began = self._address, time.monotonic()
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        assert address.hostname is not None, "checked when it was made"
        connection = kind(address.hostname, address.port, timeout=timeout)
        try:
            connection.connect()
            with self._waits(connection.sock):
                if timeout is not None:
                    limit(connection, began + timeout)
                data = None if body is None else json.dumps(body).encode()
                connection.request(method, address.path.rstrip("/") + path, data, self._headers())
                with connection.getresponse() as answer:  # one that is not read to its end keeps its socket
                    if answer.status != http.client.OK:
                        raise Refused(answer.status, _message(answer.read(LARGEST_ERROR)))
                    yield _Answer(answer)
        except TimeoutError as error:
            if timeout is None or time.monotonic() - began < timeout:
                raise  # the network's own, where a machine is gone
            raise Late(f"no answer within {timeout:g} s") from error
        finally:
            connection.close()

    @contextmanager
    def _waits(self, sock: socket.socket) -> Iterator[None]:
        """Let `close` break a connection by its socket, which `http.client` forgets once an answer begins."""
        with self._lock:
            if self._closed.is_set():
                raise ConnectionAbortedError("the client is closed")
            self._waiting.add(sock)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.discard(sock)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        key = self.key or os.environ.get(self.key_variable)
        return headers if key is None else {**headers, "Authorization": f"Bearer {key}"}


def _json(data: bytes) -> Any:
    """Read an answer, which may be plain text.

    >>> _json(b'{"a": 1}'), _json(b""), _json(b"Success: done")
    ({'a': 1}, None, 'Success: done')
    """
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError):
        return data.decode(errors="replace")


def _message(data: bytes) -> str:
    """Return the message of an error on one line.

    >>> _message(b'{"error": {"message": "too long"}}'), _message(b'{"detail": "x"}'), _message(b"no")
    ('too long', 'x', 'no')
    """
    found = _json(data)
    if isinstance(found, dict):
        inner = found.get("error", found)
        found = inner.get("message", inner.get("detail", inner)) if isinstance(inner, dict) else inner
    return " ".join(str(found).split())

"""Servers that answer with garbage, slowly, or without end: each call ends in time, with one line."""

import http.client
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from dovetail.errors import RewardError, printable
from dovetail_reward.reward.remote import Remote
from dovetail_rollout.hosted.http import JsonClient, Late, Refused, TooLarge

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
SECONDS = 0.3
"""What a call is given; `DRIP` seconds between two bytes begin that time anew for a socket's own limit."""
LONG = 120.0
"""What a call is given that ends by itself, also on a machine that has stood still for a while."""
DRIP = 0.02
BROKEN, WRONG = "broken", "wrong"


def whole(body: bytes, announced: int | None = None) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % (len(body) if announced is None else announced) + body


def scores(text: str) -> bytes:
    return whole(f'{{"scores": {text}}}'.encode())


TRICKLES = {
    "a status": b"HTTP/1.1 200 ",
    "a header": OK + b"X: ",
    "a body": OK + b"\r\n",
    "the size of a chunk": CHUNKED,
    "the extension of a chunk": CHUNKED + b"5;",
    "a refusal": b"HTTP/1.1 400 Bad\r\n\r\n",
    "what is only for the meantime": b"HTTP/1.1 100 Continue\r\nX: ",
}
ANSWERS = {
    "nothing": (b"", BROKEN),
    "bytes": (b"\x00\xff\x00\r\n\r\n", BROKEN),
    "a status of 100,000 letters": (b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n", BROKEN),
    "1,000 headers": (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000 + b"\r\n", BROKEN),
    "a chunk of no size": (CHUNKED + b"zz\r\n", BROKEN),
    "a body that is cut off": (whole(b'{"scores": [1.0', 100), BROKEN),
    "a whole body that should be longer": (whole(b'{"scores": [1.0]}', 100), BROKEN),
    "a body that should be shorter": (whole(b'{"scores": [1.0]}', 5), WRONG),
    "brackets without end": (whole(b"[" * 100_000), WRONG),
    "null": (whole(b"null"), WRONG),
    "a score that is text": (scores('["1"]'), WRONG),
    "scores that are an object": (scores('{"a": 1}'), WRONG),
    "a score too many": (scores("[1, 2]"), WRONG),
    "a score beyond floating point": (scores(f"[{'9' * 400}]"), WRONG),
    "a score of 5,000 digits": (scores(f"[{'9' * 5000}]"), WRONG),
    "another address": (b"HTTP/1.1 307 T\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", WRONG),
    "a refusal in colours": (b"HTTP/1.1 400 \x1b[31mBad\r\nContent-Length: 4\r\n\r\n\x1b[3m", WRONG),
}


@contextmanager
def answering(first: bytes, trickle: bool):
    """Yield the address of a server that says this to everybody, and then perhaps a byte at a time for long."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended, end = threading.Event(), time.monotonic() + LONG

    def one(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(LONG)
            client.recv(1 << 16)
            client.sendall(first)
            while trickle and not ended.wait(DRIP) and time.monotonic() < end:
                client.sendall(b"0")
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):  # closed with bytes unread, a connection would be reset
                pass

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def ask(url: str, seconds: float) -> list[float | None]:
    return Remote(url=url, timeout=seconds, retries=0)(["a"], ["b"], [{}])[0]


@pytest.mark.parametrize("begin", TRICKLES.values(), ids=TRICKLES)
def test_what_trickles_has_the_same_time_as_any_other(begin):
    with answering(begin, trickle=True) as url:
        began = time.monotonic()
        with suppress(RewardError):  # a refusal whose reason does not come
            assert ask(url, SECONDS) == [None]
        with pytest.raises(Late):
            JsonClient(url, "NO_KEY").post("/", {}, timeout=SECONDS)
        assert time.monotonic() - began < LONG, "the server had to give up"


@pytest.mark.parametrize(("answer", "kind"), ANSWERS.values(), ids=ANSWERS)
def test_what_is_no_answer(answer, kind):
    """A reward abstains where the connection breaks, and ends the run where the server is not one of rewards."""
    with answering(answer, trickle=False) as url:
        if kind == BROKEN:
            assert ask(url, LONG) == [None]
            with pytest.raises((OSError, http.client.HTTPException)):
                JsonClient(url, "NO_KEY").post("/", {}, timeout=LONG)
            return
        with pytest.raises(RewardError) as raised:
            ask(url, LONG)
        message = printable(raised.value)
        assert url in message
        assert "\n" not in message
        with suppress(Refused):
            JsonClient(url, "NO_KEY").post("/", {}, timeout=LONG)


def test_a_body_without_end(monkeypatch):
    monkeypatch.setattr("dovetail_rollout.hosted.http.LARGEST", 1000)
    monkeypatch.setattr("dovetail_reward.reward.remote._LARGEST", 1000)
    with answering(OK + b"\r\n" + b"x" * 100_000, trickle=False) as url:
        with pytest.raises(RewardError, match="answers with more than 1,000 bytes"):
            ask(url, LONG)
        with pytest.raises(TooLarge, match="more than 1,000 bytes"):
            JsonClient(url, "NO_KEY").post("/", {}, timeout=LONG)

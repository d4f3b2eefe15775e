"""Answers of a server that means no good: too large, pointing elsewhere, or no JSON."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dovetail_rollout.hosted import http
from dovetail_rollout.hosted.host import Answer, Ends
from dovetail_rollout.hosted.http import BROKEN, JsonClient, Late, Refused
from dovetail_rollout.hosted.vllm_server import VllmServer
from dovetail_rollout.inside import dovetail_sglang_server as sglang


@contextmanager
def serving(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answering(status, body=b"", **headers):
    """Return what answers every request so, and notes them."""

    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(dict(self.headers))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    Handler.asked = asked
    return Handler


def test_an_answer_that_points_elsewhere_is_not_followed(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret")
    elsewhere = answering(200, b"{}")
    with (
        serving(elsewhere) as other,
        serving(answering(302, Location=other)) as url,
        pytest.raises(Refused, match="status 302"),
    ):
        JsonClient(url, "SOME_KEY").get("/", timeout=120)
    assert elsewhere.asked == [], "the key would have gone with it"


def test_an_answer_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(http, "LARGEST", 1000)
    with serving(answering(200, b"[" + b"1," * 1000)) as url, pytest.raises(BROKEN, match="more than 1,000 bytes"):
        JsonClient(url, "").get("/", timeout=120)
    with serving(answering(500, b"x" * 1_000_000)) as url, pytest.raises(Refused) as refused:
        JsonClient(url, "").post("/")
    assert len(refused.value.text) <= http.LARGEST_ERROR


def test_brackets_without_end_are_no_answer():
    with serving(answering(200, b"[" * 100_000)) as url:
        assert isinstance(JsonClient(url, "").get("/", timeout=120), str)


def test_a_silent_server_is_given_up():
    class Silent(BaseHTTPRequestHandler):
        def do_GET(self):
            done.wait(120)

        def log_message(self, *_):
            pass

    done = threading.Event()
    with serving(Silent) as url:
        with pytest.raises(BROKEN):
            JsonClient(url, "").get("/", timeout=0.2)
        done.set()


def test_an_answer_that_trickles_has_the_same_time_as_any_other():
    class Trickling(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            while not done.wait(0.02):
                self.wfile.write(b" ")
                self.wfile.flush()

        def log_message(self, *_):
            pass

    done = threading.Event()
    with serving(Trickling) as url:
        with pytest.raises(Late, match=r"no answer within 0\.3 s"):
            JsonClient(url, "").get("/", timeout=0.3)
        client = JsonClient(url, "")
        threading.Timer(0.2, client.close).start()
        client.get("/", timeout=120)  # what came until it was closed
        done.set()


def test_a_server_of_ours_answers_nobody_without_its_token(monkeypatch):
    monkeypatch.setenv(sglang.TOKEN, "secret")
    with serving(sglang.Handler) as url:
        assert JsonClient(url, "", "secret").get("/health", timeout=120) == {}
        for key in (None, "wrong", "sécret"):
            with pytest.raises((Refused, UnicodeEncodeError)):
                JsonClient(url, "", key).get("/health", timeout=120)
            with pytest.raises((Refused, UnicodeEncodeError)):
                JsonClient(url, "", key).post("/load", {"folder": "/"}, timeout=120)
    assert sglang.JOBS.empty()
    monkeypatch.delenv(sglang.TOKEN)
    with serving(sglang.Handler) as url, pytest.raises(Refused, match="401"):
        JsonClient(url, "", "secret").get("/health", timeout=120)


@pytest.mark.parametrize("event", [b"{", b"[1]", b"7", b"null", b"[" * 100_000])
def test_an_event_that_is_no_object_is_refused(event):
    with serving(answering(200, b'data: {"a": 1}\n\ndata: ' + event + b"\n\n")) as url:
        events = JsonClient(url, "").stream("/", {}, timeout=120)
        assert next(events) == {"a": 1}
        with pytest.raises(Refused, match="an event that is no JSON object: "):
            next(events)


@pytest.mark.parametrize("rest", [b"", b"data: {", b'data: {"b": 2}'])
def test_events_that_end_in_the_middle_are_a_broken_connection(rest):
    """So that a stream that is hung up on for newer weights is not an odd answer."""
    with serving(answering(200, b'data: {"a": 1}\n\n' + rest)) as url:
        events = JsonClient(url, "").stream("/", {}, timeout=120)
        assert next(events) == {"a": 1}
        with pytest.raises(ConnectionResetError):
            next(events)


@pytest.mark.parametrize("error", ["overloaded", {"message": "overloaded"}, {"message": "overloaded", "code": None}])
def test_an_event_that_tells_of_an_error_is_one_whatever_its_form(error):
    with pytest.raises(Refused, match="status 500: .*overloaded"):
        VllmServer._read(None, [{"error": error}], Answer([], []), Ends(eos_ids=(), stopped=None))  # pyright: ignore

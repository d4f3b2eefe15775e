"""Reward `remote`, against a server of our own; and the rate that it keeps."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dovetail.errors import ConfigError, RewardError
from dovetail_reward.reward._rate import Rate, shared_rate
from dovetail_reward.reward.remote import Remote

Reply = tuple[int, Any]


class Server(ThreadingHTTPServer):
    """Answers each POST with what `reply` returns for the number of the request and its JSON."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply: Callable[[int, Any], Reply] = lambda number, question: (200, lengths(question))
        self.requests: list[tuple[Any, dict[str, str]]] = []
        self.at_work, self.most_at_work = 0, 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/score"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append((question, dict(self.headers)))
            self.server.at_work += 1
            self.server.most_at_work = max(self.server.most_at_work, self.server.at_work)
        status, answer = self.server.reply(number, question)
        with self.server.lock:
            self.server.at_work -= 1
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None: ...


def lengths(question: Any) -> dict[str, list[float]]:
    return {"scores": [float(len(text)) for text in question["completions"]]}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: Server, completions: list[str], **params: Any):
    reward = Remote(url=server.url, backoff=0.0, **params)
    examples = [{"answer": i, "prompt": "p", "secret": "x"} for i, _ in enumerate(completions)]
    return reward(completions, ["p"] * len(completions), examples)


def test_batches_go_out_and_scores_come_back_in_order(server):
    texts = ["x" * i for i in range(10)]
    scores, metrics = ask(server, texts, batch_size=3, columns=("answer",))
    assert scores == list(range(10))
    assert metrics == {"failed": [0.0] * 10, "retries": [0.0] * 10}
    sent = sorted((question for question, _ in server.requests), key=lambda question: question["columns"]["answer"])
    assert [len(question["completions"]) for question in sent] == [3, 3, 3, 1]
    assert sent[0] == {"prompts": ["p"] * 3, "completions": ["", "x", "xx"], "columns": {"answer": [0, 1, 2]}}
    assert ask(server, []) == ([], {"failed": [], "retries": []})


def test_null_abstains(server):
    server.reply = lambda number, question: (200, {"scores": [None, 1]})
    assert ask(server, ["a", "b"])[0] == [None, 1.0]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_passes_is_tried_again(server, status):
    server.reply = lambda number, question: (status, {}) if number < 2 else (200, lengths(question))
    scores, metrics = ask(server, ["abc"])
    assert scores == [3.0]
    assert metrics == {"failed": [0.0], "retries": [2.0]}


def test_what_does_not_pass_makes_it_abstain_on_that_batch_alone(server):
    server.reply = lambda number, question: (503, {}) if "bad" in question["completions"] else (200, lengths(question))
    scores, metrics = ask(server, ["a", "bad", "ab"], batch_size=1, retries=2)
    assert scores == [1.0, None, 2.0]
    assert metrics == {"failed": [0.0, 1.0, 0.0], "retries": [0.0, 2.0, 0.0]}


def test_late_answers_make_it_abstain(server):
    given_up = threading.Event()
    server.reply = lambda number, question: (given_up.wait(120), (200, lengths(question)))[1]
    scores, metrics = ask(server, ["a"], timeout=0.1, retries=1)
    given_up.set()
    assert scores == [None]
    assert metrics["failed"] == [1.0]


def test_no_server_makes_it_abstain(server):
    reward = Remote(url="http://127.0.0.1:9/nobody", retries=1, backoff=0.0)
    assert reward(["a"], ["p"], [{}])[0] == [None]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((404, b"no such page"), r"refuses the request: 404 .*: 'no such page'"),
        ((401, {"error": "token"}), "refuses the request: 401"),
        ((302, b"elsewhere"), "refuses the request: 302"),
        ((200, b"oops"), r"answers b'oops', which is not \{\"scores\": \[...\]\} with 2 numbers"),
        ((200, {"scores": [1]}), "1 scores for 2 completions"),
        ((200, {"score": [1, 2]}), "KeyError"),
        ((200, {"scores": [1, "good"]}), "it gave 'good'; return a number"),
        ((200, [1, 2]), "TypeError"),
    ],
)
def test_what_no_retry_mends_stops_the_run(server, reply, message):
    server.reply = lambda number, question: reply
    with pytest.raises(RewardError, match=message) as caught:
        ask(server, ["a", "b"])
    assert server.url in str(caught.value)
    assert len(server.requests) == 1


def test_a_column_that_is_no_json(server):
    reward = Remote(url=server.url, columns=("image",))
    with pytest.raises(RewardError, match="a column cannot be sent to .* as JSON: .*bytes"):
        reward(["a"], ["p"], [{"image": b"x"}])


def test_the_token_comes_from_the_environment(server, monkeypatch):
    monkeypatch.setenv("JUDGE_TOKEN", "s3cret")
    ask(server, ["a"], token_variable="JUDGE_TOKEN")
    assert server.requests[0][1]["Authorization"] == "Bearer s3cret"
    monkeypatch.delenv("JUDGE_TOKEN")
    with pytest.raises(ConfigError, match="token_variable: the environment has no variable JUDGE_TOKEN"):
        Remote(url=server.url, token_variable="JUDGE_TOKEN")


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_requests_at_a_time_than_allowed(server, most):
    together = threading.Barrier(most)

    def reply(number, question):
        together.wait(120)
        time.sleep(0.03)  # in which one more would come, if it may
        return 200, lengths(question)

    server.reply = reply
    ask(server, ["a"] * 9, batch_size=1, max_concurrency=most, timeout=300.0)
    assert server.most_at_work == most


def test_the_rate_is_kept_over_calls(server):
    started = time.monotonic()
    for _ in range(2):
        ask(server, ["a"] * 5, batch_size=1, requests_per_second=50.0)
    assert time.monotonic() - started >= 9 / 50  # a lower bound: ten requests have nine pauses between them


@pytest.mark.parametrize("url", ["localhost:8000", "file:///etc/passwd", "http://", ""])
def test_addresses_of_another_kind_are_refused(url):
    with pytest.raises(ConfigError, match="is not an address; write 'http://HOST:PORT/PATH'"):
        Remote(url=url)


def test_a_rate_spaces_calls_and_saves_nothing_up():
    now = [0.0]
    rate = Rate(per_second=2.0, clock=lambda: now[0], sleep=lambda seconds: None)
    assert [rate.reserve() for _ in range(3)] == [0.0, 0.5, 1.0]
    now[0] = 10.0
    assert [rate.reserve() for _ in range(2)] == [0.0, 0.5]


def test_a_rate_is_shared_by_name():
    assert shared_rate("a", 1.0) is shared_rate("a", 1.0)
    assert shared_rate("a", 1.0) is not shared_rate("b", 1.0)

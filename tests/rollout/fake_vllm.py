"""A server that answers as vLLM's does, so that its client can be tested in no time.

It completes with a model that it is given the folder of, or, as a program (`python fake_vllm.py FOLDER --port N ...`),
with tokens made up from the seed.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Draw = Callable[[list[int], Mapping[str, Any]], tuple[list[int], list[float]]]


def made_up(prompt: list[int], asked: Mapping[str, Any]) -> tuple[list[int], list[float]]:
    """Draw from nothing but the seed; token 1 ends a completion if it is asked to."""
    draws = random.Random(asked["seed"])
    tokens = []
    while len(tokens) < asked["max_tokens"] and not set(tokens) & set(asked["stop_token_ids"]):
        tokens.append(draws.randrange(1, 13))
    return tokens, [-1.0] * len(tokens)


class FakeVllm(ThreadingHTTPServer):
    """The server; `calls` has what it was asked, `answers` replaces answers of routes by (status, body).
    `arrived` has the routes of all requests as they come, also of those that it has not answered yet.
    It answers as many completions with the statuses in `faults`, or hangs up on them for a status of 0.

    It takes `patience` seconds for an answer and `pace` for each part of one that it streams, asks for `key` if there is one, keeps what it was given in `keys`, and its prefix cache is in use as often as `busy` says.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        port: int = 0,
        draw: Draw = made_up,
        load: Callable[[Path], None] = lambda folder: None,
        host: str = "127.0.0.1",
    ) -> None:
        self.draw, self.load = draw, load
        self.calls: list[tuple[str, Any]] = []
        self.arrived: list[str] = []
        self.answers: dict[str, tuple[int, Any]] = {}
        self.faults: list[int] = []
        self.patience = 0.0
        self.pace = 0.0
        self.key: str | None = None
        self.keys: set[str | None] = set()
        self.busy = 0
        self.info: dict[str, Any] = {
            "model_config": {"logprobs_mode": "processed_logprobs"},
            "parallel_config": {"worker_extension_cls": "dovetail_vllm_worker.DovetailWorker"},
            "device_config": {"device_type": "cpu"},
        }
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def of(self, path: str) -> list[Any]:
        """Return the bodies with which a route was called."""
        return [body for called, body in self.calls if called == path]

    def __enter__(self) -> FakeVllm:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is not an error."""

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        self.calls.append((path, body))
        if path in self.answers:
            return self.answers[path]
        if path == "/v1/completions":
            if self.faults:
                return self.faults.pop(), {"error": {"message": "not now"}}
            if len(body["prompt"]) + body["max_tokens"] > 64:
                return 400, {"error": {"message": "the prompt is too long"}}
            return 200, self.complete(body)
        if path == "/reset_prefix_cache":
            self.busy -= 1
            return 200, {"success": self.busy < 0}
        if path == "/collective_rpc":
            self.load(Path(body["kwargs"]["folder"]))
        return 200, {
            "/v1/models": {"data": [{"id": "policy"}]},
            "/server_info?config_format=json": {"vllm_config": self.info},
        }.get(path, {})

    def complete(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        tokens, logps = self.draw(asked["prompt"], asked)
        return {"choices": [{"token_ids": tokens, "logprobs": {"token_logprobs": logps}}]}


class _Handler(BaseHTTPRequestHandler):
    server: FakeVllm
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.is_ours():
            self.send(*self.server.answer(self.path, None))

    def is_ours(self) -> bool:
        """Refuse whoever lacks the key of the environment, as our addition to vLLM does on every route."""
        self.server.keys.add(self.headers.get("Authorization"))
        if self.server.key is None or self.headers.get("Authorization") == f"Bearer {self.server.key}":
            return True
        self.send(401, {"error": {"message": "no token"}})
        return False

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(data) if data else None
        if not self.is_ours():
            return
        patience = self.server.patience
        self.server.arrived.append(self.path)
        time.sleep(patience)
        status, answer = self.server.answer(self.path, body)
        if status == 0:
            self.close_connection = True
        elif body and body.get("stream") and status == 200:
            self.stream(answer["choices"][0], body["stream_interval"])
        else:
            self.send(status, answer)

    def send(self, status: int, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, choice: dict[str, Any], every: int) -> None:
        """Send a completion in parts, until nobody listens."""
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        tokens, logps = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        try:
            for start in range(0, len(tokens), every):
                cut = slice(start, start + every)
                time.sleep(self.server.pace)
                part = {"choices": [{"token_ids": tokens[cut], "logprobs": {"token_logprobs": logps[cut]}}]}
                self.wfile.write(f"data: {json.dumps(part)}\n\n".encode())
                self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            self.server.calls.append(("hung up", None))
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    print("fake vLLM with", sys.argv[1:], flush=True)
    server = FakeVllm(int(sys.argv[sys.argv.index("--port") + 1]), host=sys.argv[sys.argv.index("--host") + 1])
    server.key = os.environ["VLLM_API_KEY"]
    if "--patience" in sys.argv:
        server.patience = float(sys.argv[sys.argv.index("--patience") + 1])
    server.serve_forever()

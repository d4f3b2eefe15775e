"""Serves the engine `vanilla`: `python -m dovetail_rollout.hosted.vanilla_server FOLDER HOST PORT OPTIONS`."""

from __future__ import annotations

import hmac
import itertools
import json
import os
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import jax
import numpy as np

import dovetail
from dovetail.config.settings import Sampling
from dovetail_rollout.hosted.vanilla_process import TOKEN
from dovetail_rollout.rollout.vanilla import Vanilla


@attrs.frozen
class Ids:
    """As much of a tokenizer as an engine needs that gets ids and searches no stop strings."""

    vocab_size: int
    pad_id: int = 0
    eos_ids: tuple[int, ...] = ()

    def decode(self, ids: Sequence[int]) -> str:
        """Return nothing: nobody asks."""
        return ""


class Engine:
    """The engine with the newest weights; one call at a time."""

    def __init__(self, folder: str, options: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        self._vanilla = Vanilla(**options)
        self._open(folder)

    def _open(self, folder: str) -> None:
        maker: Any = dovetail.get("model", "pretrained").bind(path=folder)
        tokenizer: Any = Ids(maker.abstract(None).vocab_size)
        self._engine: Any = self._vanilla.open_folder(Path(folder), tokenizer)

    def load(self, body: dict[str, Any]) -> None:
        """Read weights."""
        with self._lock:
            self._open(body["folder"])

    def complete(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Complete requests; those of one prompt, which follow one another, are read once."""
        with self._lock:
            self._engine.eos_ids = tuple(body["eos_ids"])
            groups = [
                list(group) for _, group in itertools.groupby(body["requests"], key=lambda asked: asked["prompt"])
            ]
            most = max(map(len, groups))
            # an array of keys has as many columns as the largest group; what fills up the others is not returned
            words = np.array([[g[min(i, len(g) - 1)]["key"] for i in range(most)] for g in groups], np.uint32)
            longest = max(len(group[0]["prompt"]) for group in groups)
            tokens = np.zeros((len(groups), longest), np.int32)
            mask = np.zeros((len(groups), longest), bool)
            for row, group in enumerate(groups):
                prompt = group[0]["prompt"]
                tokens[row, longest - len(prompt) :], mask[row, longest - len(prompt) :] = prompt, True
            keys = jax.random.wrap_key_data(jax.numpy.asarray(words))
            drawn = self._engine.generate(tokens, mask, keys, Sampling(**body["sampling"]))
        rows = [row * most + place for row, group in enumerate(groups) for place in range(len(group))]
        return [
            {"tokens": drawn.tokens[row][drawn.mask[row]].tolist(), "logps": drawn.logps[row][drawn.mask[row]].tolist()}
            for row in rows
        ]


class Handler(BaseHTTPRequestHandler):
    """Answers with JSON."""

    engine: Engine

    def do_GET(self) -> None:
        """Answer that the process is alive."""
        if self._is_ours():
            self._answer(200, {})

    def do_POST(self) -> None:
        """Complete prompts, or read weights."""
        if not self._is_ours():
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self._answer(200, (self.engine.complete if self.path == "/complete" else self.engine.load)(body))
        except Exception as error:
            self._answer(500, {"error": f"{type(error).__name__}: {error}"})

    def _is_ours(self) -> bool:
        """Refuse whoever does not bring the token of the environment, before anything of a request is read."""
        token, given = os.environ.get(TOKEN, ""), self.headers.get("Authorization", "")
        if token and hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return True
        self._answer(401, {"error": "this server is of one run, which has its token"})
        return False

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log calls."""


def main() -> None:
    """Open the engine and serve it."""
    folder, host, port, options = sys.argv[1:]
    Handler.engine = Engine(folder, json.loads(options))
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()

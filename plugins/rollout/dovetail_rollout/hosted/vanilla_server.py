"""Serves the engine `vanilla`: `python -m dovetail_rollout.hosted.vanilla_server FOLDER HOST PORT OPTIONS`."""

from __future__ import annotations

import hmac
import itertools
import json
import os
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import attrs
import jax
import numpy as np
from jaxtyping import Int, Shaped

import dovetail
from dovetail.config.settings import Sampling
from dovetail.errors import CompletionsFailed
from dovetail_rollout.hosted.vanilla_process import TOKEN
from dovetail_rollout.rollout.vanilla import Vanilla

PADDING: Final = -1
NOBODY: Final = -2
"""The prompt of a row that fills up an array; both are no ids of any vocabulary."""


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
        self._engine: Any = None
        self._open(folder)

    def _open(self, folder: str) -> None:
        maker: Any = dovetail.get("model", "pretrained").bind(path=folder)
        tokenizer: Any = Ids(maker.abstract(None).vocab_size)
        before, self._engine = self._engine, self._vanilla.open_folder(Path(folder), tokenizer)
        if before is not None:
            self._engine.shapes = before.shapes  # what is compiled need not be run through again

    def load(self, body: dict[str, Any]) -> None:
        """Read weights."""
        with self._lock:
            self._open(body["folder"])

    def complete(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Complete requests in arrays of the shape `form`: prompts, completions of each, positions of a prompt.

        Those of one group follow one another, and their prompt is read once.
        """
        rows, tokens, words = _laid_out(body["requests"], *body["form"])
        with self._lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rows that fill up the arrays
            self._engine.eos_ids, self._engine.least_positions = tuple(body["eos_ids"]), tokens.shape[1]
            keys = jax.random.wrap_key_data(jax.numpy.asarray(words))
            given = np.where(tokens == PADDING, 0, tokens), tokens != PADDING
            try:
                drawn = self._engine.generate(*given, keys, Sampling(**body["sampling"]))
            except CompletionsFailed:
                return [{"tokens": [], "logps": []} for _ in rows]
        return [
            {"tokens": drawn.tokens[row][drawn.mask[row]].tolist(), "logps": drawn.logps[row][drawn.mask[row]].tolist()}
            for row in rows
        ]


def _laid_out(
    requests: Sequence[Mapping[str, Any]], prompts: int, samples: int, positions: int
) -> tuple[list[int], Int[np.ndarray, "prompt position"], Shaped[np.ndarray, "prompt sample word"]]:
    """Return the row of each completion, the prompts padded on the left, and the words of keys.

    Prompts that fill up the array are an id outside of every vocabulary, so that nothing is sampled for them. What
    fills up a group is sampled, and nobody gets it.
    """
    groups = [list(group) for _, group in itertools.groupby(requests, key=lambda asked: asked["group"])]
    tokens = np.full((prompts, positions), PADDING, np.int32)
    tokens[len(groups) :, -1] = NOBODY
    words = np.zeros((prompts, samples, len(requests[0]["key"])), np.uint32)
    for row, group in enumerate(groups):
        tokens[row, positions - len(group[0]["prompt"]) :] = group[0]["prompt"]
        words[row] = [group[min(sample, len(group) - 1)]["key"] for sample in range(samples)]
    rows = [row * samples + sample for row, group in enumerate(groups) for sample in range(len(group))]
    return rows, tokens, words


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

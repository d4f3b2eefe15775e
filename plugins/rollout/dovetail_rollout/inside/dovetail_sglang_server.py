"""A small server around sgl-jax's `Engine`: `python dovetail_sglang_server.py FOLDER PORT '{"dtype": "float32"}'`.

It answers `GET /health`, `POST /complete` with prompts and seeds, and `POST /load` with a folder of weights. It is a
process of its own because a failure of the scheduler kills the process it runs in. It listens on this machine alone,
and answers those alone who bring the token that the environment variable `DOVETAIL_SGLANG_TOKEN` holds.

sgl-jax's own sampler is replaced, because no correction could see what is wrong with it. Its draws with a seed come
from one hash of seed, position and token, which is far from independent from token to token: the distribution of the
draws is 0.1 to 0.2 (total variation) away from the reported one. Without a seed, a draw depends on the batch. Its two
implementations of the cuts differ, and its report is over the vocabulary. Here the draw is exact, a function of seed,
position and logits alone, and the report is over the support: min-p, then top-k, then top-p of the rest.
"""

from __future__ import annotations

import hmac
import importlib
import json
import os
import queue
import sys
import threading
import traceback
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

TOKEN = "DOVETAIL_SGLANG_TOKEN"
JOBS: queue.Queue[tuple[str, Any, Future[Any]]] = queue.Queue()


def regular_sampling(self: Any, operands: Any) -> tuple[jax.Array, jax.Array]:
    """Draw a token for each row; return the tokens and all log-probabilities over the support."""
    logits, asked, _, _ = operands
    rows = NamedSharding(self.mesh, P("data", None))
    scaled = jax.sharding.reshard(logits, rows).astype(jnp.float32) / asked.temperatures.astype(jnp.float32)
    needed = jnp.any(asked.top_ks < logits.shape[-1]) | jnp.any(asked.top_ps < 1) | jnp.any(asked.min_ps > 0)
    logps = jax.nn.log_softmax(jax.lax.cond(needed, cut, lambda logits, _: logits, scaled, asked), axis=-1)
    drawn = jax.vmap(draw)(logps, asked.sampling_seeds, asked.positions)
    logps = jnp.maximum(logps, jnp.finfo(logps.dtype).min)
    return (
        jax.sharding.reshard(drawn, NamedSharding(self.mesh, P("data"))),
        jax.sharding.reshard(logps, NamedSharding(self.mesh, P("data", "tensor"))),
    )


def draw(logps: jax.Array, seed: jax.Array, position: jax.Array) -> jax.Array:
    """Draw from one distribution, with a key made from the seed and the token's position."""
    return jax.random.categorical(jax.random.fold_in(jax.random.key(seed), position), logps)


def cut(logits: jax.Array, asked: Any) -> jax.Array:
    """Set to -inf what min-p, top-k and top-p remove, one after another."""
    order = jnp.argsort(-logits, axis=-1)
    ranked = jnp.take_along_axis(logits, order, axis=-1)
    ranks = jnp.arange(logits.shape[-1])[None, :]
    with jax.numpy_dtype_promotion("standard"):
        kept = (ranked >= ranked[:, :1] + jnp.log(asked.min_ps)[:, None]) & (ranks < asked.top_ks[:, None])
        p = jax.nn.softmax(jnp.where(kept, ranked, -jnp.inf), axis=-1)
        kept &= jnp.cumsum(p, axis=-1) - p < asked.top_ps[:, None]
    return jnp.where(jnp.take_along_axis(kept, jnp.argsort(order, axis=-1), axis=-1), logits, -jnp.inf)


def load(engine: Any, folder: str) -> None:
    """Read the weights of a folder in place with sgl-jax's own loader, and drop what was computed with the old ones."""
    from flax import nnx

    runner = engine.scheduler_info["scheduler"].tp_worker.worker.model_runner
    runner.model_config.model_path = folder
    with jax.set_mesh(runner.mesh):
        runner.model.load_weights(runner.model_config)
    new = jax.tree_util.tree_leaves(nnx.split(runner.model)[1])
    runner.model_state_leaves = [
        old if isinstance(leaf, jax.ShapeDtypeStruct) else leaf
        for old, leaf in zip(runner.model_state_leaves, new, strict=True)
    ]
    engine.flush_cache()


def complete(engine: Any, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Complete prompts, each with its own seed and limit, and the common settings."""
    prompts = [request.pop("prompt") for request in asked["requests"]]
    answers = engine.generate(
        input_ids=prompts,
        sampling_params=[asked["settings"] | own for own in asked["requests"]],
        return_logprob=True,
    )
    return [
        {
            "tokens": [int(token) for token in answer["output_ids"]],
            "logps": [float(entry[0]) for entry in answer["meta_info"]["output_token_logprobs"]],
        }
        for answer in answers
    ]


class Handler(BaseHTTPRequestHandler):
    """Hands jobs to the main thread, which runs the engine's event loop."""

    timeout = 60
    """Seconds of silence in the middle of a request."""

    def do_GET(self) -> None:
        """Answer that the process is alive."""
        if self._is_known():
            self._answer(200, {})

    def _is_known(self) -> bool:
        token = os.environ.get(TOKEN, "")
        given = self.headers.get("Authorization", "")
        if token and hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return True
        self._answer(401, {"error": "this server is somebody's own"})
        return False

    def do_POST(self) -> None:
        """Run a job in the main thread."""
        if not self._is_known():
            return
        job: Future[Any] = Future()
        JOBS.put((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))), job))
        try:
            self._answer(200, job.result())
        except Exception as error:
            self._answer(500, {"error": f"{type(error).__name__}: {error}"})

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log calls."""


def main() -> None:
    """Make the engine and serve it."""
    folder, port, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    sampler: Any = importlib.import_module("sgl_jax.srt.layers.sampler").Sampler
    sampler._regular_sampling = regular_sampling
    engine = importlib.import_module("sgl_jax.srt.entrypoints.engine").Engine(model_path=folder, **options)
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        path, body, job = JOBS.get()
        try:
            job.set_result(complete(engine, body) if path == "/complete" else load(engine, body["folder"]))
        except Exception as error:
            traceback.print_exc()
            job.set_exception(error)


if __name__ == "__main__":
    main()

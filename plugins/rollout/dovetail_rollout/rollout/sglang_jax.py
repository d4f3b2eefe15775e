"""sgl-jax as a rollout engine."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

import attrs
from annotated_types import Ge, Gt

from dovetail import STATIC
from dovetail.config.settings import Sampling
from dovetail.errors import ConfigError
from dovetail.protocols import Tokenizer, Weights
from dovetail.ranges import in_range
from dovetail_rollout.hosted.answers import tokens_of
from dovetail_rollout.hosted.engine import HostedEngine
from dovetail_rollout.hosted.handover import dtype_of
from dovetail_rollout.hosted.host import Answer, Ends, Failure, HostLost, Request
from dovetail_rollout.hosted.http import BROKEN, Late, Refused
from dovetail_rollout.hosted.opening import Opening
from dovetail_rollout.hosted.process import find_python
from dovetail_rollout.hosted.served import Served
from dovetail_rollout.kinds import Program
from dovetail_rollout.launcher.local import Here

PYTHON: Final = "DOVETAIL_SGLANG_PYTHON"
"""Environment variable: the interpreter of an environment where sgl-jax is installed."""
TOKEN: Final = "DOVETAIL_SGLANG_TOKEN"
"""Environment variable of the process: what a request has to bring, as every user of a machine can call its ports."""
SCRIPT: Final = Path(__file__).parents[1] / "inside" / "dovetail_sglang_server.py"
SEED_BITS: Final = 0x7FFFFFFF
"""sgl-jax keeps seeds in 32 bits."""
OPTIONS: Final = {
    "skip_tokenizer_init": True,
    "enable_deterministic_sampling": True,
    "enable_single_process": True,
    "disable_overlap_schedule": True,
    "log_level": "error",
}
"""Ids in and out, a seed for each completion, and access to the weights."""


@attrs.frozen(kw_only=True)
class SglangJax:
    """Samples with sgl-jax (https://github.com/sgl-project/sglang-jax), in a process and environment of its own.

    The process is started with the interpreter named by `python` or the environment variable `DOVETAIL_SGLANG_PYTHON`.
    It ends with the engine and with this process, and is restarted if it dies. It needs Python 3.12 and sgl-jax from
    its repository: the release on PyPI does not work. `docs/engines.md` says what was tested and how to install it.

    After every update the weights are written as safetensors to a folder in memory, and sgl-jax's loader reads them in
    place. Its sampler is replaced by an exact one, a function of seed, position and logits. Log-probabilities are over
    the support; `sampling.logps = 'vocabulary'` is refused if a cut makes the two differ. Completions run on beyond a
    stop string and are cut here. sgl-jax only supports heads of 128 units.

    Args:
        python: interpreter of the environment where sgl-jax is installed.
        options: further arguments of its `Engine`, such as `{'device': 'cpu', 'max_total_tokens': 16384}`.
        folder: the Hugging Face folder that the model comes from, whose `config.json` is used; None if it is a
            `model.decoder`.
        handover: the folder in which weights are written for the process; None means `/dev/shm`, or the folder for
            temporary files.
        restarts: how often within an hour the process may be restarted after it dies.
        start_seconds: time limit for a start, in seconds.
        request_seconds: time limit for the completions of a batch, which are one call, in seconds. A process that takes
            longer is treated as lost, as is one that does not answer when it is asked how it is, every 10 s.
        probe: the greatest mean difference of log-probabilities, in nats, between a few completions sampled when the
            engine opens and the trainer's scores. None means 0.01 in float32 and 0.25 in 16 bits; 0 skips the check.

    Raises:
        ConfigError: if sgl-jax is missing.
    """

    python: str | None = None
    options: dict[str, Any] = attrs.field(factory=dict)
    folder: str | None = None
    handover: str | None = None
    restarts: Annotated[int, Ge(0)] = attrs.field(default=1, validator=in_range)
    start_seconds: Annotated[float, Gt(0), STATIC] = attrs.field(default=600.0, validator=in_range)
    request_seconds: Annotated[float, Gt(0), STATIC] = attrs.field(default=14400.0, validator=in_range)
    probe: Annotated[float, Ge(0), STATIC] | None = attrs.field(default=None, validator=in_range)

    declares: ClassVar[MappingProxyType[str, Any]] = MappingProxyType(
        {
            "vocabulary_logps": False,
            "versions": True,
            "programs": ("python", "options"),
            "files": ("python", "folder", "handover"),
        }
    )

    def check(self) -> None:
        """Refuse a missing sgl-jax."""
        self._python()

    def open(self, graphdef: Any, weights: Weights, tokenizer: Tokenizer) -> HostedEngine:
        """Return an engine that samples from `nnx.merge(graphdef, *weights)`; its weights have version 0."""
        return self._opening().open(graphdef, weights, tokenizer)

    def open_folder(self, folder: Path, tokenizer: Tokenizer) -> HostedEngine:
        """Return an engine that samples from a Hugging Face folder."""
        return self._opening().open_folder(folder, tokenizer)

    def _opening(self) -> Opening:
        return Opening(
            name="sglang_jax",
            host=SglangProcess(
                place=Here(),
                python=self._python(),
                options=self.options,
                start_seconds=self.start_seconds,
                request_seconds=self.request_seconds,
            ),
            folder=self.folder,
            adapter=False,
            handover=self.handover,
            restarts=self.restarts,
            probe=self.probe,
        )

    def _python(self) -> str:
        python = find_python(self.python, "rollout.sglang_jax.python", PYTHON)
        if python is None and importlib.util.find_spec("sgl_jax") is None:
            raise ConfigError(NOT_INSTALLED)
        return python or sys.executable


NOT_INSTALLED: Final = (
    "rollout 'sglang_jax' needs sgl-jax, from its repository and with Python 3.12, in an environment of its own: name"
    f" its interpreter in rollout.sglang_jax.python or {PYTHON} (docs/engines.md)"
)


@attrs.define(kw_only=True, eq=False)
class SglangProcess(Served):
    """A `Host` that runs sgl-jax's engine in a process."""

    python: str
    options: Mapping[str, Any]
    start_seconds: float
    request_seconds: float

    def start(self, folder: Path) -> None:
        """Start the process."""
        token = secrets.token_hex(16)
        environment = {**os.environ, TOKEN: token}
        program = Program(name="sglang_jax", command=self._command, environment=lambda: environment)
        self.connect(program, folder, key=TOKEN, token=token, seconds=self.start_seconds)

    def _command(self, folder: Path, host: str, port: int) -> tuple[str, ...]:
        options = json.dumps({**OPTIONS, "dtype": dtype_of(folder), **self.options})
        return (self.python, "-P", str(SCRIPT), str(folder), str(port), options)

    def check_health(self, seconds: float) -> None:
        """Ask whether the process answers; its engine works in another thread of it."""
        self._connected.get("/health", timeout=seconds)

    def complete(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure]:
        """Complete all requests in one call."""
        settings = {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k or -1,
            "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
            "min_p": sampling.min_p or 0.0,
            "stop_token_ids": list(ends.eos_ids),
        }
        asked = [
            {
                "prompt": request.prompt,
                "sampling_seed": request.seed & SEED_BITS,
                "max_new_tokens": request.most(sampling.max_tokens),
            }
            for request in requests
        ]
        found = self._call("/complete", {"requests": asked, "settings": settings})
        # With one token to choose from, sgl-jax takes the argmax but reports it as if there had been a choice.
        certain = sampling.top_k == 1 and sampling.temperature > 0
        try:
            drawn = [tokens_of(each["tokens"], each["logps"]) for each in found]
        except (Refused, TypeError, KeyError) as error:
            raise HostLost(f"sgl-jax answers with {type(error).__name__}: {error}") from error
        return [Answer(tokens, [0.0] * len(tokens) if certain else logps) for tokens, logps in drawn]

    def load(self, folder: Path) -> None:
        """Make the process read the weights in place."""
        self._call("/load", {"folder": str(folder)})

    def epitaph(self, what: str) -> str:
        """Say what happened, and how the process ended."""
        words = self.process.epitaph() if self.process else ""
        return f"sgl-jax: {what}" + (f"; {words}" if words else "")

    def _call(self, path: str, body: Any) -> Any:
        """Call the process, and look whether it is well while it says nothing."""
        assert self.client is not None, "it is started"
        with ThreadPoolExecutor(1, thread_name_prefix="sglang_jax") as pool:
            asked = pool.submit(self.client.post, path, body, timeout=self.request_seconds)
            try:
                self.await_all([asked])
            except Refused as refused:
                raise HostLost(self.epitaph(refused.text)) from refused
            except Late as late:
                raise HostLost(self.epitaph(f"{late} (rollout.sglang_jax.request_seconds)")) from late
            except BROKEN as error:
                raise HostLost(self.epitaph(f"the connection broke ({type(error).__name__})")) from error
        return asked.result()

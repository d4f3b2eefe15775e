"""vLLM as a rollout engine."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal

import attrs
from annotated_types import Ge, Gt

from dovetail import STATIC, Chooses
from dovetail.errors import ConfigError
from dovetail.extras import needs
from dovetail.protocols import Tokenizer, Weights
from dovetail.ranges import in_range
from dovetail_rollout.hosted.engine import HostedEngine
from dovetail_rollout.hosted.fleet import Fleet, check_fleet, chosen_launcher
from dovetail_rollout.hosted.host import Host
from dovetail_rollout.hosted.http import JsonClient
from dovetail_rollout.hosted.opening import Opening
from dovetail_rollout.hosted.process import find_python
from dovetail_rollout.hosted.vllm_flags import check_flags
from dovetail_rollout.hosted.vllm_server import KEY, Serving, VllmServer
from dovetail_rollout.kinds import Place
from dovetail_rollout.launcher.local import Local
from dovetail_rollout.launcher.urls import Elsewhere, Urls

PYTHON: Final = "DOVETAIL_VLLM_PYTHON"
"""Environment variable: the interpreter of an environment where vLLM is installed."""


@attrs.frozen(kw_only=True)
class Vllm:
    """Samples with vLLM (https://docs.vllm.ai): a server in a process and environment of its own, or in this process.

    The engine uses a running server at `url`, or starts one: `python -m vllm.entrypoints.openai.api_server` in the
    environment named by `python` or by the environment variable `DOVETAIL_VLLM_PYTHON`, or in this one if vLLM is
    installed beside Dovetail. This server ends with the engine and with this process, however that ends. Its health is
    checked while it works, and it is restarted if it dies.

    After every update the weights are written as safetensors to a folder in memory, vLLM reads them in place, and its
    prefix cache is emptied. Log-probabilities are `processed_logprobs`: at the sampling temperature, over the support.
    `sampling.logps = 'vocabulary'` is refused if a cut makes the two differ. Each completion has a seed made from its
    key: the same key gives the same tokens, up to rounding, which depends on the batch.

    `docs/engines.md` says which versions were tested and how to install vLLM.

    Args:
        mode: 'server', or 'in_process', which needs vLLM in this environment.
        python: interpreter of the environment where vLLM is installed.
        command: a command that starts a server, such as `vllm serve`, instead of `python`; the model and arguments are
            appended.
        url: a running server, such as `http://host:8000`, that sees the folder `handover` under the same path. It must
            have been started with VLLM_SERVER_DEV_MODE=1, `--skip-tokenizer-init` and `--logprobs-mode
            processed_logprobs`. Nobody else may use it, and it keeps the last weights it was given.
        flags: further arguments of the server, such as `('--max-model-len', '2048')`, or of `LLM` in this process. The
            engine's own, such as `--port`, `--api-key` and `--model`, are refused.
        folder: the Hugging Face folder that the model comes from, whose `config.json` is used; None if it is a
            `model.decoder`.
        adapter: whether to hand over only the LoRA adapter, while vLLM keeps the base model of `folder`; otherwise the
            adapter is merged.
        handover: where weights are written for the server; None is `/dev/shm`, or the folder for temporary files.
        sleep: whether to release the device's memory after each batch of prompts, if the trainer uses the same device;
            vLLM cannot do this on CPUs.
        connections: concurrent requests.
        replicas: number of servers that share the work. Requests go to the server with the fewest outstanding tokens;
            those of a lost server go to the others. See `docs/fleet.md`.
        launcher: where the replicas run: 'local', 'ray' or 'urls'.
        floor: the least number of replicas, including those being restarted; with fewer the run ends.
        restarts: how often within an hour each server may be restarted after it dies.
        start_seconds: time limit for a start, in seconds.
        request_seconds: time limit for a completion, in seconds. A replica that exceeds it while it answers other
            requests is left alone, and another one is asked; if that exceeds it as well, or there is only one server,
            the completion fails and is left out. A server that says nothing of several for so long is treated as lost.
        probe: the greatest mean difference of log-probabilities, in nats, between a few completions sampled when the
            engine opens and the trainer's scores. None means 0.01 in float32 and 0.25 in 16 bits; 0 skips the check.

    Raises:
        ConfigError: if vLLM is missing, or settings exclude each other.
    """

    mode: Literal["server", "in_process"] = "server"
    python: str | None = None
    command: str | None = None
    url: str | None = None
    flags: tuple[str, ...] = ()
    folder: str | None = None
    adapter: bool = False
    handover: str | None = None
    sleep: bool = False
    connections: Annotated[int, Ge(1)] = attrs.field(default=256, validator=in_range)
    replicas: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    launcher: Annotated[Any, Chooses("launcher")] = "dovetail/local"
    floor: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    restarts: Annotated[int, Ge(0)] = attrs.field(default=1, validator=in_range)
    start_seconds: Annotated[float, Gt(0), STATIC] = attrs.field(default=600.0, validator=in_range)
    request_seconds: Annotated[float, Gt(0), STATIC] = attrs.field(default=3600.0, validator=in_range)
    probe: Annotated[float, Ge(0), STATIC] | None = attrs.field(default=None, validator=in_range)

    declares: ClassVar[MappingProxyType[str, Any]] = MappingProxyType(
        {
            "vocabulary_logps": False,
            "versions": True,
            "in_flight": True,
            "programs": ("python", "command", "url", "flags"),
            "files": ("python", "folder", "handover"),
        }
    )

    @property
    def claims(self) -> Mapping[str, Any]:
        """What it does with these settings.

        vLLM in this process does not take newer weights in the middle of completions, and none reads a DoRA adapter.
        """
        in_flight = {"in_flight": False} if self.mode == "in_process" else {}
        return in_flight | ({"low_rank_only": "adapter"} if self.adapter else {})

    def __attrs_post_init__(self) -> None:
        given = [name for name in ("python", "command", "url") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigError(
                f"rollout.vllm: {' and '.join(given)} are given; each says where vLLM is, so set only one"
            )
        if self.mode == "in_process" and given:
            raise ConfigError(f"rollout.vllm.mode = 'in_process' does not use {given[0]}; leave it out")
        check_fleet("vllm", self.launcher, self.replicas, self.floor)
        self._check_several()
        check_flags(self.flags, starts=self.url is None and not isinstance(chosen_launcher(self.launcher), Urls))
        if self.adapter and self.folder is None:
            raise ConfigError("rollout.vllm.adapter = True needs rollout.vllm.folder: the folder of the base model")

    def _check_several(self) -> None:
        """Refuse settings that do not apply to several servers."""
        several = self.replicas > 1 or not isinstance(chosen_launcher(self.launcher), Local)
        if not several:
            return
        for name, without in (("url", None), ("sleep", False)):
            if getattr(self, name) != without:
                hint = "name all addresses in launcher.urls.urls" if name == "url" else "each has devices of its own"
                raise ConfigError(f"rollout.vllm.{name} is of one server, and there are replicas; {hint}")
        if self.mode == "in_process":
            raise ConfigError("rollout.vllm.mode = 'in_process' is one engine; replicas need mode = 'server'")

    def check(self) -> None:
        """Refuse a malformed address and a missing vLLM."""
        chosen_launcher(self.launcher).check()
        self._host()
        if self.url is not None:
            JsonClient(self.url, KEY)

    def open(self, graphdef: Any, weights: Weights, tokenizer: Tokenizer) -> HostedEngine:
        """Return an engine that samples from `nnx.merge(graphdef, *weights)`; its weights have version 0."""
        return self._opening().open(graphdef, weights, tokenizer)

    def open_folder(self, folder: Path, tokenizer: Tokenizer) -> HostedEngine:
        """Return an engine that samples from a Hugging Face folder."""
        return self._opening().open_folder(folder, tokenizer)

    def _opening(self) -> Opening:
        return Opening(
            name="vllm",
            host=self._host(),
            folder=self.folder,
            adapter=self.adapter,
            handover=self.handover,
            restarts=self.restarts,
            probe=self.probe,
        )

    def _host(self) -> Host:
        if self.mode == "in_process":
            from dovetail_rollout.hosted.vllm_in_process import VllmInProcess

            return VllmInProcess.open(self.flags, sleeps=self.sleep)
        launcher = chosen_launcher(self.launcher)
        replicas = launcher.count(self.replicas)
        ours = self.url is None and not isinstance(launcher, Urls)
        serving = Serving(
            command=self._command() if ours else (),
            sleeps=self.sleep,
            flags=self.flags,
            start_seconds=self.start_seconds,
        )

        def replica(place: Place) -> VllmServer:
            return VllmServer(
                serving=serving,
                place=place,
                sleeps=self.sleep,
                calls=self.connections,
                request_seconds=self.request_seconds,
            )

        if self.url is not None:
            return replica(Elsewhere(self.url))
        if isinstance(launcher, Local) and replicas == 1:
            return replica(launcher.place(0))
        return Fleet(
            name="vllm", launcher=launcher, replica=replica, count=replicas, restarts=self.restarts, floor=self.floor
        )

    def _command(self) -> tuple[str, ...]:
        """Return the command that starts a server.

        Raises:
            ConfigError: if the command does not exist.
        """
        if self.command is not None:
            words = tuple(shlex.split(self.command))
            if not words or shutil.which(words[0]) is None:
                raise ConfigError(f"rollout.vllm.command = {self.command!r}: there is no such program")
            return words
        python = find_python(self.python, "rollout.vllm.python", PYTHON)
        if python is None and importlib.util.find_spec("vllm") is None:
            raise ConfigError(
                needs("rollout 'vllm'", "vLLM", "vllm")
                + " here, or install it in an environment of its own and name its"
                f" interpreter in rollout.vllm.python or {PYTHON} (docs/engines.md)"
            )
        return (python or sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model")

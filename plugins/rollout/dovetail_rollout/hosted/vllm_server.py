"""vLLM behind its own server, `vllm serve`: OpenAI completions, and the routes that replace weights."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from dovetail.config.settings import Sampling
from dovetail.errors import ConfigError, RunError
from dovetail_rollout.hosted.answers import choices_of
from dovetail_rollout.hosted.handover import adapted, dtype_of
from dovetail_rollout.hosted.host import Answer, Ends, Failure, HostLost, Overdue, Request, Then
from dovetail_rollout.hosted.http import BROKEN, JsonClient, Late, Refused, TooLarge
from dovetail_rollout.hosted.served import ANSWER_SECONDS, Served
from dovetail_rollout.kinds import Program

NAME: Final = "policy"
ADAPTER: Final = "adapter"
AWAY: Final = 1024
"""Conversations at most, beside those that a server samples, whose tools or environments are at work."""
CHUNK: Final = 16
"""Tokens between two checks for stop strings."""
INSIDE: Final = Path(__file__).parents[1] / "inside"
FORGET_TRIES: Final = 50
UNWELCOME: Final = {
    401: "set VLLM_API_KEY to the server's key",
    403: "set VLLM_API_KEY to a key that may use it",
    404: "it has no such route, or not this run's model any more (docs/engines.md)",
}
"""Statuses that every other request would have as well, and what to do."""
BUSY: Final = (408, 425, 429)
"""Statuses that a request need not have again, as those from 500."""
PAUSES: Final = (0.5, 2.0, 8.0)
"""Seconds before each repetition of a request that a healthy server did not answer."""
KEY: Final = "VLLM_API_KEY"
LEAST_TEMPERATURE: Final = 0.01
LORA_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)

WORKER: Final = "dovetail_vllm_worker.DovetailWorker"
SERVING: Final = (
    *("--served-model-name", NAME),
    *("--skip-tokenizer-init", "--disable-uvicorn-access-log"),
    *("--logprobs-mode", "processed_logprobs"),
    *("--generation-config", "vllm"),
    *("--worker-extension-cls", WORKER),
    *("--middleware", "dovetail_vllm_guard.TokenOnly"),
)
"""Ids in and out, log-probabilities after temperature and cuts, no sampling settings from the model's folder, our way
of reading weights, and a token on every route: vLLM's own key does not guard those that replace weights."""
ENVIRONMENT: Final = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONSAFEPATH": "1",
}
"""Opens the routes that replace weights, reports no usage, and imports nothing from the run's folder."""


@attrs.frozen(kw_only=True)
class Serving:
    """How to start a server.

    Attributes:
        command: the words before the model's folder.
        sleeps: whether it can release the device's memory.
        flags: further arguments, which override all others.
        start_seconds: how long the start may take.
    """

    command: tuple[str, ...]
    sleeps: bool
    flags: tuple[str, ...]
    start_seconds: float

    def arguments(self, folder: Path, host: str, port: int) -> tuple[str, ...]:
        """Return the whole command that serves the model or adapter in a folder."""
        adapter = adapted(folder)
        base = Path(adapter["base_model_name_or_path"]) if adapter else folder
        lora = ("--enable-lora", "--max-lora-rank", str(lora_rank(adapter["r"]))) if adapter else ()
        sleep = ("--enable-sleep-mode",) if self.sleeps else ()
        where = ("--host", host, "--port", str(port))
        return (*self.command, str(base), *where, "--dtype", dtype_of(folder), *SERVING, *lora, *sleep, *self.flags)


@attrs.define(kw_only=True, eq=False)
class VllmServer(Served):
    """A `Host` that is a server in some place: ours, started as `serving` says, or somebody else's.

    Attributes:
        sleeps: whether the server releases the device's memory after each batch.
        calls: concurrent requests.
        request_seconds: the longest that a completion may take. One that takes longer may be asked for elsewhere; if
            the server has said nothing of several in this time, it is lost.
        asked: the completions that it is sampling, each by an object of its own.
        answered: when it last said something of a completion, in the time of `time.monotonic`.
    """

    serving: Serving
    sleeps: bool
    calls: int
    request_seconds: float = 3600.0
    model: str = NAME
    has_worker: bool = False
    asleep: bool = False
    asked: set[object] = attrs.field(factory=set)
    answered: float = 0.0

    def start(self, folder: Path) -> None:
        """Start a server for the folder, or have somebody else's load it."""
        self.asleep = False
        token = secrets.token_hex(16)
        program = Program(name="vllm", command=self.serving.arguments, environment=partial(environment, token))
        process, client = self.connect(program, folder, key=KEY, token=token, seconds=self.serving.start_seconds)
        self._check_settings()
        if not process.ours or adapted(folder):
            try:
                self.load(folder)
            except HostLost as lost:
                raise RunError(f"the vLLM server at {client.url} does not take the weights: {lost}") from lost

    def check_health(self, seconds: float) -> None:
        """Ask whether the server and its engine are well."""
        self._connected.get("/health", timeout=seconds)

    def _check_settings(self) -> None:
        """Refuse a server whose log-probabilities are not those of the draw, or whose weights cannot be replaced."""
        client = self._connected
        try:
            found = client.get("/server_info?config_format=json", timeout=ANSWER_SECONDS)["vllm_config"]
            self.model = client.get("/v1/models", timeout=ANSWER_SECONDS)["data"][0]["id"]
        except Refused as refused:
            if refused.status in (401, 403):
                advice = UNWELCOME[refused.status]
                raise RunError(f"the vLLM server at {client.url} answers with {refused}: {advice}") from refused
            raise RunError(
                f"the vLLM server at {client.url} has no route to replace weights: start it with VLLM_SERVER_DEV_MODE=1"
                f" ({refused})"
            ) from refused
        except BROKEN as error:
            raise RunError(f"there is no vLLM server at {client.url}: {error}") from error
        mode = found["model_config"]["logprobs_mode"]
        if mode != "processed_logprobs":
            raise RunError(
                f"the vLLM server at {client.url} has logprobs_mode '{mode}', not at the sampling temperature; start it"
                " with --logprobs-mode processed_logprobs"
            )
        self.has_worker = found["parallel_config"]["worker_extension_cls"] == WORKER
        if not self.has_worker and found["device_config"]["device_type"] == "cpu":
            raise RunError(
                f"the vLLM server at {client.url} runs on a CPU, where vLLM itself does not update tied embeddings;"
                f" start it with PYTHONPATH={INSIDE} and --worker-extension-cls {WORKER}"
            )

    def complete(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure]:
        """Send each request over a connection of its own, and check the server's health meanwhile."""
        answers: dict[int, Answer | Failure] = {}
        self._complete(requests, sampling, ends, answers.__setitem__, min(self.calls, len(requests)))
        return [answers[place] for place in range(len(requests))]

    def converse(self, requests: Sequence[Request], sampling: Sampling, ends: Ends, then: Then) -> None:
        """Have a thread for each conversation, as far as `AWAY` allows, of which `calls` wait for the server."""
        self._complete(requests, sampling, ends, then, min(self.calls + AWAY, len(requests)))

    def _complete(self, requests: Sequence[Request], sampling: Sampling, ends: Ends, then: Then, threads: int) -> None:
        """Send requests and what follows them, and check the server's health meanwhile."""
        check_temperature(sampling)
        self._wake()
        body = {"model": self.model} | completion_settings(sampling, ends)
        pool, free = ThreadPoolExecutor(threads, thread_name_prefix="vllm"), threading.Semaphore(self.calls)

        def converse(place: int, request: Request | None) -> None:
            while request is not None:
                with free:
                    answer = self._one(self._connected, request, body, ends)
                request = then(place, Failure(answer.reason) if isinstance(answer, Overdue) else answer)

        futures = [pool.submit(converse, *each) for each in enumerate(requests)]
        try:
            self.await_all(futures, ends)
        except Refused as refused:
            raise HostLost(self.epitaph(f"it answers with {refused}")) from refused
        except BROKEN as error:
            raise HostLost(self.epitaph(self._broke(error))) from error
        finally:
            pool.shutdown(cancel_futures=True)
            self.reconnect()  # all is cut if something that follows a turn has raised, and the server is well
        if self.sleeps:
            self._call("/sleep?level=1")
            self.asleep = True

    def share(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure | Overdue]:
        """Send requests one after another over the calling thread's connections."""
        check_temperature(sampling)
        client = self.client
        if client is None:
            raise HostLost("it was stopped")
        body = {"model": self.model} | completion_settings(sampling, ends)
        try:
            return [self._one(client, request, body, ends) for request in requests]
        except Refused as refused:
            raise HostLost(f"it answers with {refused}") from refused
        except BROKEN as error:
            raise HostLost(self._broke(error)) from error

    def _one(
        self, client: JsonClient, request: Request, body: dict[str, Any], ends: Ends
    ) -> Answer | Failure | Overdue:
        """Ask for a completion, and again, with its seed, if a server that is well does not answer it."""
        for pause in PAUSES:
            try:
                return self._asked(client, request, body, ends)
            except (Refused, *BROKEN) as error:
                if not _is_passing(error) or not self.healthy():
                    raise
            client.pause(pause)
        return self._asked(client, request, body, ends)

    def _asked(
        self, client: JsonClient, request: Request, body: dict[str, Any], ends: Ends
    ) -> Answer | Failure | Overdue:
        own = {"prompt": request.prompt, "seed": request.seed, "max_tokens": request.most(body["max_tokens"])}
        asked, began, mine = {**body, **own}, time.monotonic(), object()
        self.asked.add(mine)
        try:
            if ends.stopped is None and ends.interrupt is None:
                found = client.post("/v1/completions", asked, timeout=self.request_seconds)
                answer = Answer(*choices_of(found)[0])
            else:
                answer = self._streamed(client, asked, ends)
        except Late as late:
            if self.answered < began and len(self.asked) > 1:
                raise
            return Overdue(self._broke(late))
        except Refused as refused:
            self._check_welcome("/v1/completions", refused)
            if _is_passing(refused) or not 400 <= refused.status < 500:
                raise
            return Failure(refused.text)
        finally:
            self.asked.discard(mine)
        self.answered = time.monotonic()
        if answer.tokens or answer.cut:
            return attrs.evolve(answer, seconds=self.answered - began)
        return Failure("the server returned no token")

    def _streamed(self, client: JsonClient, asked: dict[str, Any], ends: Ends) -> Answer:
        """Read a completion as it is sampled; at a stop string hang up, which makes the server stop.

        Newer weights break it off, even while the server lets it wait for its turn (`hang_up`).
        """
        answer = Answer([], [])
        streams = client if ends.interrupt is None else self.streams  # before the look: these are those hung up on
        if ends.interrupted or streams is None:
            return attrs.evolve(answer, cut=True)
        streamed = {**asked, "stream": True, "stream_interval": CHUNK}
        try:
            with closing(streams.stream("/v1/completions", streamed, timeout=self.request_seconds)) as events:
                self._read(events, answer, ends)
        except Late:
            raise
        except BROKEN:
            if not ends.interrupted:
                raise
            return attrs.evolve(answer, cut=True)
        return answer

    def _read(self, events: Iterable[Any], answer: Answer, ends: Ends) -> None:
        """Append what a server sends, up to a stop string."""
        for event in events:
            if "error" in event:
                told = event["error"] if isinstance(event["error"], dict) else {"message": event["error"]}
                code: Any = told.get("code")
                raise Refused(int(code) if str(code).isdecimal() else 500, str(told.get("message")))
            self.answered, seen = time.monotonic(), len(answer.tokens)
            for tokens, logps in choices_of(event, streamed=True):
                answer.tokens.extend(tokens)
                answer.logps.extend(logps)
            if ends.stopped is not None and ends.stopped(answer.tokens, seen) is not None:
                return

    def load(self, folder: Path) -> None:
        """Have the server read the weights and drop the keys and values computed with the old ones."""
        self._wake()
        folder = self.place.see(folder)
        if adapted(folder):
            self._call("/v1/load_lora_adapter", {"lora_name": ADAPTER, "lora_path": str(folder), "load_inplace": True})
            self.model = ADAPTER
        else:
            self._call("/collective_rpc", self._reload(folder))
        self._forget()

    def _forget(self) -> None:
        """Empty the prefix cache, which only works once the completions that we hung up on are gone."""
        for _ in range(FORGET_TRIES):
            answer = self._call("/reset_prefix_cache")
            if not isinstance(answer, dict) or answer.get("success", True):
                return
            time.sleep(0.1)
        raise HostLost(self.epitaph("its prefix cache cannot be emptied; is somebody else using it?"))

    def _reload(self, folder: Path) -> dict[str, Any]:
        if self.has_worker:
            return {"method": "dovetail_reload", "kwargs": {"folder": str(folder)}}
        return {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}

    def _wake(self) -> None:
        if self.asleep:
            self._call("/wake_up")
            self.asleep = False

    def _call(self, path: str, body: Any = None) -> Any:
        try:
            return self._connected.post(path, body, timeout=self.request_seconds)
        except Refused as refused:
            self._check_welcome(path, refused)
            raise HostLost(self.epitaph(f"{path} answers with {refused}")) from refused
        except BROKEN as error:
            raise HostLost(self.epitaph(f"{path}: {self._broke(error)}")) from error

    def _check_welcome(self, path: str, refused: Refused) -> None:
        """End the run if a server refuses not this request but all.

        Raises:
            RunError: with what to do.
        """
        if refused.status in UNWELCOME:
            where = f" at {self.client.url}" if self.client else ""
            raise RunError(
                f"the vLLM server{where} answers {path} with {refused}; {UNWELCOME[refused.status]}"
            ) from refused

    def _broke(self, error: Exception) -> str:
        if isinstance(error, Late):
            return f"no answer within {self.request_seconds:g} s (rollout.vllm.request_seconds)"
        return f"the connection broke ({type(error).__name__})"

    def epitaph(self, what: str) -> str:
        """Say what happened, and how the process ended if it is ours."""
        words = self.process.epitaph() if self.process else ""
        return f"vLLM server{f' at {self.client.url}' if self.client else ''}: {what}" + (f"; {words}" if words else "")


def environment(token: str) -> dict[str, str]:
    """Return the environment of our server: this process's, vLLM's settings, the path of our additions, and a token."""
    path = os.pathsep.join(filter(None, (str(INSIDE), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": path, KEY: token}


def _is_passing(error: Exception) -> bool:
    """Return whether a request that was not answered may be answered the next time.

    >>> [_is_passing(error) for error in (Refused(503, ""), Refused(400, ""), ConnectionResetError(), Late())]
    [True, False, True, False]
    """
    if isinstance(error, Refused):
        return error.status in BUSY or error.status >= 500
    return not isinstance(error, Late | TooLarge)


def completion_settings(sampling: Sampling, ends: Ends) -> dict[str, Any]:
    """Return the settings of all completions; every one is given, so that no default matters."""
    return {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k or 0,
        "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
        "min_p": sampling.min_p or 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "ignore_eos": True,
        "stop_token_ids": list(ends.eos_ids),
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def check_temperature(sampling: Sampling) -> None:
    """Refuse a temperature that vLLM would silently replace by another one."""
    if 0 < sampling.temperature < LEAST_TEMPERATURE:
        raise ConfigError(
            f"sampling.temperature = {sampling.temperature}: vLLM samples at {LEAST_TEMPERATURE} instead; use 0, or at"
            " least that"
        )


def lora_rank(rank: int) -> int:
    """Return the smallest rank vLLM supports that is large enough for an adapter.

    >>> lora_rank(3), lora_rank(64)
    (8, 64)

    Raises:
        ConfigError: if none is.
    """
    fitting = [allowed for allowed in LORA_RANKS if allowed >= rank]
    if not fitting:
        raise ConfigError(f"adapter of rank {rank}: vLLM has room for {LORA_RANKS[-1]} at most")
    return fitting[0]

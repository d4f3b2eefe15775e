"""The engine `vanilla` in a process of its own, as one of several replicas."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from dovetail.config.settings import Sampling
from dovetail_rollout.hosted.calls import Form, Place, call_of, form_of_call, share_of
from dovetail_rollout.hosted.host import Answer, Ends, Failure, HostLost, Request
from dovetail_rollout.hosted.http import BROKEN, Refused
from dovetail_rollout.hosted.served import Served
from dovetail_rollout.kinds import Program

SERVER: Final = "dovetail_rollout.hosted.vanilla_server"
TOKEN: Final = "DOVETAIL_VANILLA_TOKEN"
REQUEST_SECONDS: Final = 24 * 3600.0
"""How long a batch may take: a process that hangs ends the run at last."""


def _command(options: str, folder: Path, host: str, port: int) -> tuple[str, ...]:
    return (sys.executable, "-m", SERVER, str(folder), host, str(port), options)


def _environment(token: str) -> dict[str, str]:
    """Return the environment of the process: it has devices of its own, and need not take all of their memory.

    It answers those alone who bring the token.
    """
    return {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ, TOKEN: token}


def _place(request: Request) -> Place:
    assert request.place is not None, "`HostedEngine` says it"
    return request.place


@attrs.define(kw_only=True, eq=False)
class Calls:
    """The calls into which replicas divide batches, and an example of each kind of call that they have compiled.

    Attributes:
        at_once: how many completions a call has, about; None divides a batch into `parts`.
        parts: into how many calls.
    """

    at_once: int | None
    parts: int
    known: dict[str, Any] = attrs.field(factory=dict)

    def of(self, request: Request) -> tuple[int, int]:
        """Return which call of its batch a request belongs to."""
        place = _place(request)
        return call_of(place, self.at_once or share_of(place.batch, self.parts))

    def form(self, request: Request) -> Form:
        """Return the shape of a request's call."""
        batch = _place(request).batch
        return form_of_call(batch, self.at_once or share_of(batch, self.parts))

    def note(self, asked: dict[str, Any]) -> None:
        """Note what was asked, if it is the first of its kind; called from several threads."""
        sampling = asked["sampling"]
        static = [sampling["max_tokens"], sampling["top_k"], *(sampling[cut] is None for cut in ("top_p", "min_p"))]
        self.known.setdefault(json.dumps([asked["form"], asked["eos_ids"], static]), asked)

    def examples(self) -> list[Any]:
        """Return an example of each kind."""
        return list(self.known.values())


@attrs.define(kw_only=True, eq=False)
class VanillaProcess(Served):
    """A `Replica` that draws with the engine `vanilla`, from the keys of completions and not from their seeds.

    Attributes:
        options: hyperparameters of `vanilla`.
        start_seconds: how long a start may take.
        sizes: divides batches into calls, and knows those that replicas have compiled.
    """

    options: dict[str, Any]
    start_seconds: float
    sizes: Calls
    calls: int = 1

    def start(self, folder: Path) -> None:
        """Start the process, and wait until it has read the folder and compiled what the others have."""
        token = secrets.token_hex(16)
        command, environment = partial(_command, json.dumps(self.options)), partial(_environment, token)
        program = Program(name="vanilla", command=command, environment=environment)
        self.connect(program, folder, key=TOKEN, token=token, seconds=self.start_seconds)
        for asked in self.sizes.examples():
            self._call("/complete", asked)  # compiles it, before anybody waits for an answer

    def check_health(self, seconds: float) -> None:
        """Ask whether the process answers; its engine works in another thread of it."""
        self._connected.get("/health", timeout=seconds)

    def complete(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure]:
        """Complete all requests in one call."""
        try:
            return self.share(requests, sampling, ends)
        except HostLost as lost:
            raise HostLost(self.epitaph(str(lost))) from lost

    def share(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure]:
        """Complete the requests of one call."""
        if not requests:
            return []
        asked = {
            "requests": [{"prompt": each.prompt, "key": each.key, "group": _place(each).prompt} for each in requests],
            "form": attrs.astuple(self.sizes.form(requests[0])),
            "sampling": attrs.asdict(attrs.evolve(sampling, stop=())),
            "eos_ids": ends.eos_ids,
        }
        found = self._call("/complete", asked)
        self.sizes.note(asked)
        return [Answer(each["tokens"], each["logps"]) if each["tokens"] else Failure(FAILED) for each in found]

    def load(self, folder: Path) -> None:
        """Have the process read the weights."""
        try:
            self._call("/load", {"folder": str(self.place.see(folder))})
        except HostLost as lost:
            raise HostLost(self.epitaph(str(lost))) from lost

    def epitaph(self, what: str) -> str:
        """Say what happened, and how the process ended."""
        words = self.process.epitaph() if self.process else ""
        return f"vanilla in a process: {what}" + (f"; {words}" if words else "")

    def _call(self, path: str, body: Any) -> Any:
        client = self.client
        if client is None:
            raise HostLost("it was stopped")
        try:
            return client.post(path, body, timeout=REQUEST_SECONDS)
        except Refused as refused:
            raise HostLost(f"{path} answers with {refused}") from refused
        except BROKEN as error:
            raise HostLost(f"{path}: the connection broke ({type(error).__name__})") from error


FAILED: Final = "the policy's logits are NaN or infinite"

"""A host that is a program with an address: started in some place, asked over HTTP, and left."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from pathlib import Path
from typing import Any, Final

import attrs

from dovetail.errors import RunError
from dovetail.progress import SAMPLING, so_far
from dovetail_rollout.hosted.host import Ends, HostLost
from dovetail_rollout.hosted.http import BROKEN, JsonClient, Refused
from dovetail_rollout.hosted.process import on_a_free_port
from dovetail_rollout.kinds import Place, Program, Running

TELL_SECONDS: Final = 2.0
"""Between two reports of how many completions are there."""
HEALTH_SECONDS: Final = 10.0
"""Between two health checks of a busy server."""
ANSWER_SECONDS: Final = 30.0
"""How long a server may take to answer a request that needs no computation."""
STARTING_SECONDS: Final = 5.0
"""How long one question may take while a program starts: who has taken its port meanwhile may never answer."""


KEYLESS: Final = (401, 403)
"""Statuses of a server that does not take the token of a request."""


class Unwelcome(RunError):
    """A server that was started here answers, and does not take the token that it was given."""


@attrs.define(kw_only=True, eq=False)
class Served(ABC):
    """The connection to a server.

    Attributes:
        place: where it runs.
        client: asks it; None before the start and after the end.
        streams: asks it for what may be broken off, on connections of its own.
        process: the server itself, if it is running.
    """

    place: Place
    client: JsonClient | None = None
    streams: JsonClient | None = None
    process: Running | None = None
    reading: tuple[Path, ...] = ()

    @property
    def _connected(self) -> JsonClient:
        if self.client is None:
            raise ConnectionAbortedError("it was stopped")
        return self.client

    @abstractmethod
    def check_health(self, seconds: float) -> None:
        """Ask it whether it is well, with some seconds for an answer.

        Raises:
            Refused: if it answers, but does not say so.
            OSError, HTTPException: if it does not answer.
        """

    def healthy(self, seconds: float = ANSWER_SECONDS) -> bool:
        """Tell whether it says that it is well, within some seconds."""
        try:
            self.check_health(seconds)
        except (Refused, *BROKEN):
            return False
        return True

    def connect(
        self, program: Program, folder: Path, *, key: str, token: str, seconds: float
    ) -> tuple[Running, JsonClient]:
        """Start the program for a folder, and wait until it is healthy.

        Args:
            program: what to start.
            folder: the model.
            key: the environment variable that gives a server of ours its token, and has the key of one that is not.
            token: what a server of ours was given to ask for.
            seconds: how long the start may take.

        Raises:
            RunError: if that fails, at once if the server does not take the token.
        """

        def ready() -> bool:
            try:
                self.check_health(STARTING_SECONDS)
            except Refused as refused:
                if refused.status in KEYLESS:
                    raise Unwelcome(
                        f"{program.name} at {self._connected.url} answers with {refused}: it does not have the token"
                        f" that its process was to get in {key}; what starts it has to pass that variable on as it is"
                    ) from refused
                return False
            except BROKEN:
                return False
            return True

        def begin() -> tuple[Running, JsonClient]:
            self.stop()
            self.process = process = self.place.run(program, self.place.see(folder))
            self.client = client = JsonClient(process.url, key, token if process.ours else None)
            self.streams = client.anew()
            process.wait_for(ready, seconds)
            return process, client

        try:
            return on_a_free_port(begin)
        except Unwelcome:  # a server of another run may have taken the port; the next one is another
            return on_a_free_port(begin)

    @abstractmethod
    def epitaph(self, what: str) -> str:
        """Say what happened, where, and how its process ended."""

    def await_all(self, futures: Sequence[Future[Any]], ends: Ends | None = None) -> None:
        """Wait for answers, and ask a server that has been silent for long how it is.

        Raises:
            HostLost: if it does not say that it is well.
            Exception: the first one of a call. Those that still wait are then cut.
        """
        waiting, heard = set(futures), time.monotonic()
        usual = min(TELL_SECONDS, HEALTH_SECONDS)
        try:
            while waiting:
                done, waiting = wait(waiting, ends.look(usual) if ends else usual, FIRST_EXCEPTION)
                if ends is not None and ends.interrupts_now():
                    self.hang_up()
                if ends is not None and (done or ends.interrupt is None):
                    so_far(SAMPLING, len(futures) - len(waiting), len(futures))
                for future in done:
                    future.result()
                if done:
                    heard = time.monotonic()
                elif time.monotonic() - heard >= HEALTH_SECONDS:
                    heard = time.monotonic()
                    if not self.healthy():
                        raise HostLost(self.epitaph("it does not answer"))
        finally:
            if waiting:
                self.cut()

    def cut(self) -> None:
        """Hang up on all requests."""
        for client in (self.client, self.streams):
            if client is not None:
                client.close()

    def reconnect(self) -> None:
        """Let a server that is there be asked again after `cut`."""
        if self.client is not None:
            self.client, self.streams = self.client.anew(), self.client.anew()

    def hang_up(self) -> None:
        """Hang up on the streams alone, so that other requests and later streams are not affected."""
        if self.streams is not None:
            hung_up, self.streams = self.streams, self.streams.anew()
            hung_up.close()

    def stop(self) -> None:
        """End our server, or disconnect from somebody else's; a second call does nothing."""
        self.cut()
        self.client = self.streams = None
        if self.process is not None:
            self.process.close()
            self.process = None

"""The pipes to an MCP server: lines of bounded length, nothing logged, and an end that always comes."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import attrs
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

LARGEST = 1 << 24
"""The greatest number of bytes of a message."""
GRACE = ((None, 1.0), (signal.SIGTERM, 1.0), (signal.SIGKILL, 1.0))
"""What a server is told after its input is closed, and the seconds that it has before the next."""
POLL_SECONDS = 0.01
SHOWN = 80


@attrs.define
class Heard:
    """What a server has written that is not a message, as far as a message for the user shows it."""

    odd: str = ""

    def __str__(self) -> str:
        """Return it as the rest of a sentence; empty if there is nothing."""
        return f"; it wrote {self.odd}, which is not a message of MCP" if self.odd else ""


@asynccontextmanager
async def pipes(command: Sequence[str], heard: Heard) -> AsyncIterator[Any]:
    """Start a server, and yield the two streams of messages that a client wants; it has ended afterwards.

    The library's own reads lines of any length, and logs what it cannot read with a traceback.
    """
    process = await anyio.open_process(
        list(command), env=get_default_environment(), stderr=None, start_new_session=True
    )
    to_client, read = anyio.create_memory_object_stream[Any](0)
    write, from_client = anyio.create_memory_object_stream[Any](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_receive, process, to_client, heard)
            group.start_soon(_send, process, from_client, to_client)
            try:
                yield read, write
            finally:
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
            for stream in (to_client, read, write, from_client):
                await stream.aclose()


async def _receive(process: Any, to_client: Any, heard: Heard) -> None:
    begun = bytearray()
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        while len(begun) <= LARGEST:
            *lines, rest = (await process.stdout.receive()).split(b"\n")
            for line in lines:
                begun += line
                await _pass_on(bytes(begun), to_client, heard)
                begun.clear()
            begun += rest
        heard.odd = f"a line of more than {LARGEST:,} bytes"
    if begun and not heard.odd:
        heard.odd = _shown(bytes(begun))
    await to_client.aclose()


async def _pass_on(line: bytes, to_client: Any, heard: Heard) -> None:
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        if line.strip():
            heard.odd = _shown(line)
        return
    await to_client.send(SessionMessage(message))


async def _send(process: Any, from_client: Any, to_client: Any) -> None:
    try:
        async for each in from_client:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(text.encode(errors="replace") + b"\n")
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await to_client.aclose()  # so that no request waits for an answer


async def _end(process: Any) -> None:
    """End a server and all that it has started."""
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await process.stdin.aclose()
    for signum, seconds in GRACE:
        if signum is not None:
            _kill(process, signum)
        with anyio.move_on_after(seconds):
            while process.returncode is None:  # to wait for it would be to wait for whoever has its pipes, too
                await anyio.sleep(POLL_SECONDS)
        if process.returncode is not None:
            break
    _kill(process, signal.SIGKILL)
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        with anyio.move_on_after(GRACE[-1][1]):
            while True:  # a pipe that is not empty stays open
                await process.stdout.receive()


def _kill(process: Any, signum: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signum)


def _shown(line: bytes) -> str:
    text = line[:SHOWN].decode(errors="replace")
    return repr(f"{text}..." if len(line) > SHOWN else text)

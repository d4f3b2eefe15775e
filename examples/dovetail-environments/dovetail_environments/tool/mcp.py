"""Tool `mcp`: the tools of an MCP server, which is started here and speaks over stdin and stdout."""

from __future__ import annotations

import asyncio
import atexit
import functools
import re
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Annotated, Any

import attrs
from annotated_types import Gt
from dovetail.errors import ConfigError
from dovetail.protocols import Result, Tool
from dovetail.ranges import in_range
from dovetail.registry import declares

NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
MOST_PAGES = 100


@declares(settings={"command": ("python", "server.py")}, programs=("command",), files=("command",))
@attrs.frozen(kw_only=True)
class Mcp:
    """The tools of a server of the Model Context Protocol, with the schemas that it gives.

    The server is started on first use, once in each process in which tools run, and ends with it. A tool's result is
    the text of its content; an error that the server reports is for the policy to read. A server that dies is nobody's
    fault in the episode, which is left out with one line that says so, and the next call starts it again. What a server
    keeps from call to call is shared by all episodes, so choose one that keeps nothing.

    Args:
        command: the program and its arguments, `('python', 'server.py')`; it gets no more of the environment than the
            `mcp` library lets through (`PATH`, `HOME` and such).
        only: names of the tools to be taken; none: all.
        time_limit: seconds for a call, and for the start.

    Raises:
        ConfigError: without the `mcp` library; if the server cannot be started, or does not have what `only` says.
    """

    command: tuple[str, ...] = attrs.field(converter=tuple)
    only: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    time_limit: Annotated[float, Gt(0)] = attrs.field(default=30.0, validator=in_range)

    def __attrs_post_init__(self) -> None:
        """Look for the library."""
        try:
            import mcp  # noqa: F401
        except ImportError as error:
            raise ConfigError("tool mcp needs the mcp library: pip install 'dovetail-environments[mcp]'") from error

    def __call__(self, name: str, arguments: dict) -> Result:
        """Call a tool of the server by its name."""
        return called(self, name, arguments)

    def tools(self) -> list[Tool]:
        """Return the server's tools."""
        listed = {each.name: each for each in server(self.command).listed(self.time_limit)}
        for name in self.only:
            if name not in listed:
                raise ConfigError(f"tool.mcp.only = '{name}': {self.command} has {', '.join(listed) or 'no tools'}")
        return [self._tool(each) for name, each in listed.items() if not self.only or name in self.only]

    def _tool(self, listed: Any) -> Tool:
        if not NAME.fullmatch(listed.name) or listed.input_schema.get("type") != "object":
            raise ConfigError(
                f"the MCP server {self.command} has a tool {listed.name[:80]!r} with arguments of type"
                f" {listed.input_schema.get('type')!r}: a name is letters, digits and ._/-, and arguments an object;"
                " name the others in tool.mcp.only"
            )
        schema = {"description": listed.description or "", "parameters": listed.input_schema}
        return Tool(
            name=listed.name, function=functools.partial(_by_name, self, listed.name), target=Mcp, schema=schema
        )


def _by_name(mcp: Mcp, name: str, /, **arguments: Any) -> Result:
    return called(mcp, name, arguments)


def called(mcp: Mcp, name: str, arguments: dict[str, Any]) -> Result:
    """Call a tool.

    Raises:
        ConnectionError: if the server has ended, in one line.
        ValueError: in words for the model, if the server refuses the call or does not answer in time.
    """
    found = server(mcp.command).call(name, arguments, mcp.time_limit)
    text = "\n".join(getattr(part, "text", f"({part.type})") for part in found.content)
    return Result(text, failed=bool(found.is_error))


@functools.cache
def server(command: Sequence[str]) -> Server:
    """Return the server of a command, the same one in this process; it ends with the program."""
    found = Server(command)
    atexit.register(found.close)
    return found


class Server:
    """A server with the thread that talks to it, which starts on first use, and again after the server has died."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = tuple(command)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._scope: Any = None
        self._heard: Any = ""
        self._thread: threading.Thread | None = None

    def listed(self, time_limit: float) -> list[Any]:
        """Return all of its tools.

        Raises:
            ConfigError: if it does not list them, in one line.
        """
        found, cursor = [], None
        try:
            for _ in range(MOST_PAGES):
                page = self._ask("list_tools", time_limit, cursor=cursor)
                found, cursor = [*found, *page.tools], page.next_cursor
                if not cursor:
                    return found
            problem: object = f"there are more than {MOST_PAGES} pages of them"
        except (ConnectionError, ValueError) as error:
            problem = error
        self.close()
        raise ConfigError(f"the MCP server {self.command} does not list its tools: {problem}")

    def call(self, name: str, arguments: dict[str, Any], time_limit: float) -> Any:
        """Call a tool."""
        try:
            return self._ask("call_tool", time_limit, name=name, arguments=arguments)
        except ConnectionError as error:
            self.close()
            raise ConnectionError(f"the MCP server {self.command} {error} during the call of '{name}'") from None

    def close(self) -> None:
        """End the server; the next call starts it again."""
        if self._loop is not None and self._scope is not None:
            with suppress(RuntimeError):  # its thread has ended before
                self._loop.call_soon_threadsafe(self._scope.cancel)
        if self._thread is not None:
            self._thread.join(10)
        self._client = self._loop = self._scope = self._thread = None

    def _ask(self, method: str, time_limit: float, **given: Any) -> Any:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED
        from pydantic import ValidationError

        if self._thread is None:
            self._start(time_limit)
        assert self._loop is not None
        asked = asyncio.run_coroutine_threadsafe(getattr(self._client, method)(**given), self._loop)
        try:
            return asked.result(time_limit)
        except TimeoutError:
            asked.cancel()
            late = f"no answer within {time_limit:g} seconds"
            if str(self._heard):  # not the tool is slow, but the server is broken
                raise ConnectionError(f"gave {late}{self._heard}") from None
            raise ValueError(late) from None
        except ValidationError as error:
            raise ConnectionError(f"gave an answer of another form ({_line(error)})") from None
        except MCPError as error:
            if error.error.code == CONNECTION_CLOSED:
                raise ConnectionError(f"ended{self._heard}") from None
            raise ValueError(str(error)) from None

    def _start(self, time_limit: float) -> None:
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        try:
            ready.result(time_limit)
        except Exception as error:
            self.close()
            said = _line(error) or f"no answer within {time_limit:g} seconds"
            raise ConfigError(f"the MCP server {self.command} cannot be started: {said}{self._heard}") from error

    async def _serve(self, ready: Future[None]) -> None:
        import anyio

        self._loop, self._scope = asyncio.get_running_loop(), anyio.CancelScope()
        with self._scope:  # cancelled also while a server begins, which may never answer
            await self._session(ready)

    async def _session(self, ready: Future[None]) -> None:
        import anyio
        from mcp import Client

        from dovetail_environments._pipes import Heard, pipes

        self._heard = Heard()
        try:
            async with Client(pipes(self.command, self._heard)) as client:
                self._client = client
                ready.set_result(None)
                await anyio.sleep_forever()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(_first(error) if isinstance(error, Exception) else ConnectionError("it was ended"))
            if not isinstance(error, Exception):
                raise


def _first(error: Exception) -> Exception:
    """Return what a group of exceptions is about."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]

"""An MCP server for tests: it adds, refuses, waits, and dies."""

import os
import time

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("sums")


@server.tool()
def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def refuse(why: str) -> str:
    """Refuse."""
    raise ToolError(why)


@server.tool()
def die() -> str:
    """End in the middle of a call."""
    os._exit(3)


@server.tool()
def wait(seconds: float) -> str:
    """Wait."""
    time.sleep(seconds)
    return "done"


if __name__ == "__main__":
    server.run()

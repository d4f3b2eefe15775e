"""An MCP server for tests that does something odd, named by its argument."""

import json
import os
import signal
import sys
import time

BEGUN = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}}
TOOL = {"name": "t", "description": "Do it.", "inputSchema": {"type": "object", "properties": {}}}
TOOLS = {"tools": [TOOL]}
RESULTS = {"initialize": BEGUN, "tools/list": TOOLS, "tools/call": {"content": [{"type": "text", "text": "ok"}]}}


def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def wait():
    time.sleep(600)


def flood(text):
    while True:
        sys.stdout.write(text)


ODD = {
    "start": {
        "garbage": lambda: (say("hello, \x1b[31mworld\n\x00 garbage\n" * 1000), wait()),
        "bytes": lambda: (sys.stdout.buffer.write(b"\xff\xfe\n"), sys.stdout.flush(), wait()),
        "half": lambda: (say('{"jsonrpc": "2.0", "id":'), wait()),
        "half and dies": lambda: (say('{"jsonrpc": "2.0", "id":'), os._exit(3)),
        "never": wait,
        "line without end": lambda: flood("x" * 1_000_000),
        "lines without end": lambda: flood("x" * 1000 + "\n"),
    },
    "initialize": {"number": lambda: 3, "dies": lambda: os._exit(3)},
    "tools/list": {
        "number": lambda: {"tools": 3},
        "again": lambda: {**TOOLS, "nextCursor": "again"},
        "never": wait,
        "dies": lambda: os._exit(3),
        "codes": lambda: {"tools": [TOOL | {"name": "\x1b[31m\n"}]},
        "schema": lambda: {"tools": [TOOL | {"inputSchema": {"type": 5}}]},
    },
    "tools/call": {
        "garbage": lambda: (say("garbage\n"), wait()),
        "number": lambda: {"content": 3},
        "half and dies": lambda: (say('{"jsonrpc"'), os._exit(3)),
        "gigabytes": lambda: flood("x" * 1_000_000),
        "surrogate": lambda: {"content": [{"type": "text", "text": "\ud800"}]},
        "stays": lambda: (signal.signal(signal.SIGTERM, signal.SIG_IGN), wait()),
        "image": lambda: {"content": [{"type": "image", "data": "aaaa", "mimeType": "image/png"}]},
    },
}

if __name__ == "__main__":
    where, what = sys.argv[1:]
    if where == "start":
        ODD[where][what]()
    for line in sys.stdin:
        asked = json.loads(line)
        method = asked.get("method")
        if "id" in asked:
            result = ODD[where][what]() if method == where else RESULTS.get(method, {})
            say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}) + "\n")
    if what == "stays":
        wait()

"""A report that is served while what it shows goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import attrs

from dovetail.errors import DovetailError, RunError
from dovetail_lab.report.page import page, paragraph

HOST: Final = "127.0.0.1"
REFRESH_SECONDS: Final = 5
"""How often a browser asks again."""
KEPT_SECONDS: Final = 2.0
"""How long a page is shown again before it is made anew, so that many windows cost no more than one."""


@attrs.define
class Fresh:
    """Makes a page anew if the last one is old; one that cannot be made says why."""

    render: Callable[[], str]
    now: Callable[[], float] = time.monotonic
    _made: str = ""
    _at: float = -1e9

    def __call__(self) -> str:
        """Return the page."""
        if self.now() - self._at >= KEPT_SECONDS:
            try:
                text = self.render()
            except (DovetailError, OSError) as error:
                text = page("Not yet", "", [paragraph(str(error))])
            refresh = f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'
            self._made, self._at = text.replace("<title>", f"{refresh}\n<title>", 1), self.now()
        return self._made


def server(render: Callable[[], str], port: int) -> ThreadingHTTPServer:
    """Return a server of one page on the loopback interface.

    Requests that name another host than this one are refused, so that no page from elsewhere can read it by letting its
    own name point here.

    Raises:
        RunError: if the port is taken.
    """
    fresh = Fresh(render)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if host not in (HOST, "localhost") or self.path != "/":
                self.send_error(404)
                return
            body = fresh().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"port {port} cannot be had: {reason}; choose another --port, or 0") from error


def serve(render: Callable[[], str], port: int) -> int:
    """Serve until a signal, such as Ctrl-C, ends the command."""
    with server(render, port) as open_server:
        print(f"http://{HOST}:{open_server.server_address[1]}/ (Ctrl-C ends it)", flush=True)
        open_server.serve_forever()
    return 0

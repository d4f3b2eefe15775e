"""What Dovetail adds to vLLM's server: it answers those alone who bring the token.

vLLM asks for its key on routes such as `/v1` only, and not on those that replace weights. It uses only the standard
library, as it is imported where vLLM is installed.
"""

from __future__ import annotations

import hmac
import os
from typing import Any

KEY = "VLLM_API_KEY"


class TokenOnly:
    """ASGI middleware, added by `--middleware`: without the token that `VLLM_API_KEY` holds, the answer is 401."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.expected = f"Bearer {os.environ[KEY]}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it; what is not a request, such as the start of the server, has no headers."""
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "lifespan" or hmac.compare_digest(given, self.expected):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            body = b'{"error": {"message": "this server is of one run, which has its token"}}'
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        else:
            await send({"type": "websocket.close", "code": 1008})

"""The token of our vLLM server: every route asks for it, those that replace weights above all."""

from __future__ import annotations

import asyncio

import pytest

from dovetail_rollout.inside.dovetail_vllm_guard import TokenOnly


def answered(monkeypatch, kind: str, *headers: tuple[bytes, bytes]) -> list:
    """Return what is sent for a request."""
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    sent: list = []

    async def app(scope, receive, send):
        await send("passed on")

    async def send(message):
        sent.append(message)

    scope = {"type": kind, "path": "/collective_rpc"} | ({} if kind == "lifespan" else {"headers": list(headers)})
    asyncio.run(TokenOnly(app)(scope, None, send))
    return sent


@pytest.mark.parametrize("given", [(), ((b"authorization", b"Bearer other"),), ((b"authorization", b"secret"),)])
def test_without_the_token_nothing_is_passed_on(monkeypatch, given):
    start, body = answered(monkeypatch, "http", *given)
    assert start["status"] == 401
    assert b"token" in body["body"]
    assert answered(monkeypatch, "websocket", *given) == [{"type": "websocket.close", "code": 1008}]


def test_with_the_token_and_at_the_start_it_is(monkeypatch):
    assert answered(monkeypatch, "http", (b"authorization", b"Bearer secret")) == ["passed on"]
    assert answered(monkeypatch, "lifespan") == ["passed on"]

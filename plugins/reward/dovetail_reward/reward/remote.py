"""Reward `remote`: scores that are requested from a server over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import attrs
from annotated_types import Ge, Gt

from dovetail.errors import ConfigError, RewardError
from dovetail.registry import declares
from dovetail_kit.deadlines import limit
from dovetail_reward.reward._own import numbers_of
from dovetail_reward.reward._rate import shared_rate

_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses for which a retry may succeed; others mean that the request is wrong."""
_CHUNK = 1 << 16
_LARGEST = 64 << 20


@declares(deterministic=False, programs=("url", "token_variable"))
@attrs.frozen(kw_only=True)
class Remote:
    """The score of each completion from a server, such as a judge, a reward model or a grader in a container.

    The server gets POST requests with a batch of completions in JSON, and replies with as many numbers, or null to
    abstain:

        {"prompts": ["6 * 7?"], "completions": ["42"], "columns": {"answer": ["42"]}}  ->  {"scores": [1.0]}

    Several requests are sent concurrently, up to a given rate. A request that times out, cannot reach the server, or is
    temporarily rejected (status 408, 425, 429, 500, 502, 503, 504) is retried after `backoff` seconds, then after twice
    as many, and so on, or after the time that the server asks for (`Retry-After`, at most ten minutes). When all
    retries have failed, the reward abstains on these completions, which is different from a score of zero.

    Args:
        completions: texts without special tokens.
        prompts: the prompts, as the model got them.
        examples: the records, from which `columns` are sent.
        url: the address, `http://` or `https://`.
        columns: dataset columns that the server needs.
        batch_size: the number of completions in a request.
        max_concurrency: the maximum number of concurrent requests.
        requests_per_second: the maximum rate of all requests of this process to the address; None for no limit.
        timeout: seconds for one attempt.
        retries: the number of further attempts.
        backoff: seconds before the first retry.
        token_variable: the environment variable with the token for `Authorization: Bearer`. The token itself must not
            be in the configuration, which is written to the run's folder.

    Returns:
        The scores, and per completion `failed`, 1 if there was no reply, and `retries`, the number of retries of its
        request.

    Raises:
        ConfigError: on construction, if the address is invalid or the variable is not set.
        RewardError: when called, if the server refuses the request, or sends an invalid reply.

    >>> Remote(url="localhost:8000")
    Traceback (most recent call last):
    dovetail.errors.ConfigError: url = 'localhost:8000' is not an address; write 'http://HOST:PORT/PATH'
    """

    url: str
    columns: tuple[str, ...] = ()
    batch_size: Annotated[int, Ge(1)] = 16
    max_concurrency: Annotated[int, Ge(1)] = 8
    requests_per_second: Annotated[float, Gt(0)] | None = None
    timeout: Annotated[float, Gt(0)] = 30.0
    retries: Annotated[int, Ge(0)] = 3
    backoff: Annotated[float, Ge(0)] = 1.0
    token_variable: str | None = None

    def __attrs_post_init__(self) -> None:
        """Check the address and the token variable, without contacting the server."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(f"url = {self.url!r} is not an address; write 'http://HOST:PORT/PATH'")
        if self.token_variable is not None and not os.environ.get(self.token_variable):
            raise ConfigError(f"token_variable: the environment has no variable {self.token_variable}")

    def __call__(
        self, completions: Sequence[str], prompts: Sequence[str], examples: Sequence[Mapping[str, Any]]
    ) -> tuple[list[float | None], dict[str, list[float]]]:
        """Return one score per completion, and metrics."""
        rows = range(0, len(completions), self.batch_size)
        parts = [slice(start, start + self.batch_size) for start in rows]
        questions = [
            {
                "prompts": list(prompts[part]),
                "completions": list(completions[part]),
                "columns": {name: [example[name] for example in examples[part]] for name in self.columns},
            }
            for part in parts
        ]
        with ThreadPoolExecutor(self.max_concurrency) as threads:
            answers = list(threads.map(self._scores, questions))
        scores = [score for found, _ in answers for score in found]
        tries = [float(tried) for found, tried in answers for _ in found]
        failed = [float(tried > self.retries) for tried in tries]
        return scores, {"failed": failed, "retries": [min(tried, self.retries) for tried in tries]}

    def _scores(self, question: dict[str, Any]) -> tuple[list[float | None], int]:
        """Return the scores of one batch, and the number of failed attempts."""
        size = len(question["completions"])
        for tried in range(self.retries + 1):
            if self.requests_per_second is not None:
                shared_rate(self.url, self.requests_per_second).wait()
            try:
                return _read_scores(self._post(question), size, self.url), tried
            except _AgainLaterError as error:
                if tried < self.retries:
                    time.sleep(max(self.backoff * 2**tried, error.after))
        return [None] * size, self.retries + 1

    def _post(self, question: dict[str, Any]) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token_variable is not None:
            headers["Authorization"] = f"Bearer {os.environ[self.token_variable]}"
        request = urllib.request.Request(self.url, data=_json(question, self.url), headers=headers, method="POST")
        deadline = time.monotonic() + self.timeout
        try:
            with _OPENER.open(request, timeout=self.timeout) as response:
                return _read(response, deadline)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in _PASSING:
                    raise _AgainLaterError(_seconds(error.headers.get("Retry-After"))) from error
                said = _message(error)
            raise RewardError(f"{self.url} refuses the request: {error.code} {error.reason}: {said!r}") from error
        except (OSError, http.client.HTTPException) as error:  # no server, no answer in time, one cut short
            raise _AgainLaterError from error


class _StayHere(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: following one would change the request, and send the token to another server."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


def _limited(kind: type[http.client.HTTPConnection]) -> Callable[..., http.client.HTTPConnection]:
    """Return a kind of connection whose timeout is for all of an answer."""

    class Limited(kind):
        def connect(self) -> None:
            end = time.monotonic() + (self.timeout or 0.0)
            super().connect()
            limit(self, end)

    return Limited


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_limited(http.client.HTTPConnection), req)  # pyright: ignore[reportArgumentType]


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_limited(http.client.HTTPSConnection), req)  # pyright: ignore[reportArgumentType]


_OPENER = urllib.request.build_opener(_StayHere, _Http, _Https)


class _AgainLaterError(Exception):
    def __init__(self, after: float = 0.0) -> None:
        super().__init__()
        self.after = after


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """Read a body; one that is shorter than announced is cut off, which the library itself does not see."""
    announced = response.length
    body = bytearray()
    while chunk := response.read1(_CHUNK):
        body += chunk
        if time.monotonic() > deadline:
            raise TimeoutError
        if len(body) > _LARGEST:
            raise RewardError(f"{response.url} answers with more than {_LARGEST:,} bytes")
    if announced is not None and len(body) < announced:
        raise http.client.IncompleteRead(bytes(body), announced - len(body))
    return bytes(body)


def _message(error: urllib.error.HTTPError) -> str:
    """Return how a refusal begins; its status alone where the rest does not come."""
    try:
        return error.read(200).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""


def _json(question: dict[str, Any], url: str) -> bytes:
    try:
        return json.dumps(question).encode()
    except (TypeError, ValueError) as error:
        raise RewardError(f"a column cannot be sent to {url} as JSON: {error}") from error


def _read_scores(body: bytes, size: int, url: str) -> list[float | None]:
    try:
        scores = json.loads(body)["scores"]
        return numbers_of(scores, size, "it")
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise RewardError(
            f'{url} answers {body[:200]!r}, which is not {{"scores": [...]}} with {size} numbers'
            f" ({type(error).__name__}: {error})"
        ) from error


def _seconds(retry_after: str | None) -> float:
    """Return the delay that a server asks for in seconds; None for a date, so that the backoff applies."""
    return min(float(retry_after), 600.0) if retry_after and retry_after.isdecimal() else 0.0

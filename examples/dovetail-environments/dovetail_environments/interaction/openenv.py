"""Interaction `openenv`: an environment that an OpenEnv server hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import attrs
import numpy as np
from annotated_types import Ge, Gt
from dovetail.errors import ConfigError, RunError
from dovetail.protocols import Example, Message, Step, Turn
from dovetail.ranges import in_range
from dovetail.registry import declares

from dovetail_environments._replay import Opened, Played, Worlds, written

LARGEST_MB = 16.0
"""Of a message of a server; its text is for a policy to read."""
LARGEST_REWARD = 1e30
LONGEST = 300


@declares(
    settings={"url": "http://127.0.0.1:9"},
    programs=("url",),
    expected_failures=dict.fromkeys(
        ("is_a_function", "announces_its_columns"), "it needs a server; a test of this package starts one"
    ),
)
@attrs.frozen(kw_only=True)
class OpenEnv:
    """Each turn is an action of an episode in a session of its own, over a WebSocket.

    The state is the seed, the columns and the turns so far; see the interaction `gymnasium`. A session that was closed
    because the server allows no more is begun again with the same actions: an environment must do the same with the
    same seed and actions.

    Args:
        url: of the server, `http://localhost:8000`.
        action: the field of the action that gets the turn's text, `message` or `code`.
        fields: its other fields.
        shown: the field of the observation that the policy reads; all of it as JSON if empty.
        columns: the task's columns that the environment's `reset` is given, besides `seed`.
        steps: turns until an episode is over; the agent loop must allow as many.
        message: what is said; `{shown}` is what `shown` says.
        sessions: how many are kept open, at most what the server allows (`max_concurrent_envs`).
        time_limit: seconds for an answer.

    Raises:
        ConfigError: on construction, without the library.
        RunError: if an episode cannot begin. A step that the server does not answer leaves the episode out.
    """

    url: str
    action: str = "message"
    fields: Mapping[str, Any] = attrs.field(factory=dict)
    shown: str = ""
    columns: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    steps: Annotated[int, Ge(1)] = attrs.field(default=16, validator=in_range)
    message: str = "\n{shown}\n"
    sessions: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    time_limit: Annotated[float, Gt(0)] = attrs.field(default=60.0, validator=in_range)
    _worlds: Worlds = attrs.field(
        default=attrs.Factory(lambda self: Worlds(self._begun, self._acted, _close, self.sessions), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )

    def __attrs_post_init__(self) -> None:
        """Look for the library."""
        try:
            import openenv.core  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "interaction openenv needs OpenEnv: pip install 'dovetail-environments[openenv]'"
            ) from error

    def reset(self, example: Example, rng: np.random.Generator) -> tuple[Played, Sequence[Message]]:
        """Begin an episode with a seed, and show the first observation."""
        row = written({name: example[name] for name in self.columns})
        state = Played(int(rng.integers(2**31)), row=row)
        try:
            opened, result = self._worlds.begun(state)
        except Exception as error:
            raise RunError(f"the OpenEnv server {self.url} cannot begin an episode: {self._why(error)}") from error
        self._worlds.keep(state, opened)
        return state, self._said(result)

    def anchor(self, state: Played) -> Played:
        """Return the state: what has been done, since an observation may hide something."""
        return state

    def step(self, state: Played, turn: Turn, rng: np.random.Generator) -> Step:
        """Act."""
        opened, after = self._worlds.at(state), state.then(turn.text)
        try:
            result = self._acted(opened.world, turn.text)
        except BaseException as error:
            _close(opened.world)
            if not isinstance(error, Exception):
                raise
            raise ConnectionError(f"the OpenEnv server {self.url} cannot act: {self._why(error)}") from error
        done = bool(result.done) or turn.number + 1 >= self.steps
        if done:
            _close(opened.world)
        else:
            self._worlds.keep(after, opened)
        said = () if done else self._said(result)
        return Step(state=after, messages=said, reward=float(result.reward or 0), done=done)

    def _said(self, result: Any) -> tuple[Message, ...]:
        seen = result.observation
        shown = str(seen.get(self.shown, "")) if self.shown else json.dumps(seen, ensure_ascii=False)
        shown = shown.encode(errors="replace").decode()  # half of a surrogate pair is in no vocabulary
        return ({"role": "user", "content": self.message.format(shown=shown)},)

    def _begun(self, opened: Opened, state: Played) -> Any:
        from openenv.core import GenericEnvClient

        opened.world = GenericEnvClient(
            self.url, message_timeout_s=self.time_limit, max_message_size_mb=LARGEST_MB
        ).sync()
        try:
            opened.world.connect()
            return _checked(opened.world.reset(seed=state.seed, **json.loads(state.row)))
        except BaseException:
            _close(opened.world)
            raise

    def _acted(self, client: Any, text: str) -> Any:
        return _checked(client.step({**self.fields, self.action: text}))

    def _why(self, error: Exception) -> str:
        """Return what is wrong in a line."""
        if isinstance(error, TimeoutError):
            return f"no answer within {self.time_limit:g} seconds"
        said = " ".join(str(error).split())[:LONGEST] or type(error).__name__
        garbage = isinstance(error, AttributeError | KeyError | TypeError | json.JSONDecodeError | UnicodeDecodeError)
        return f"its answer is none of OpenEnv ({said})" if garbage else said


def _checked(result: Any) -> Any:
    """Return what a server has answered, if it is an observation.

    Raises:
        ValueError: if it is something else.
    """
    if not isinstance(result.observation, dict):
        raise ValueError(f"it answers with the observation {result.observation!r:.80}, which is not an object")
    reward = result.reward
    if reward is not None and not (isinstance(reward, int | float) and abs(reward) < LARGEST_REWARD):
        raise ValueError(f"it answers with the reward {reward!r:.80}, which is not a finite number")
    return result


def _close(client: Any) -> None:
    with suppress(Exception):  # the connection is lost
        client.close()

"""An OpenEnv server for tests: a safe whose code depends on the seed."""

import os
import random
import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Try(Action):
    """A code."""

    code: str


class Seen(Observation):
    """What the safe says."""

    said: str


class Safe(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, hint="", **kwargs):
        self.code, self.tries = random.Random(seed).randrange(3), 0
        return Seen(said=f"a safe {hint}", done=False, reward=None)

    def step(self, action, timeout_s=None, **kwargs):
        if action.code == "die":
            os._exit(3)
        self.tries += 1
        right = action.code == str(self.code)
        return Seen(said=f"open after {self.tries}" if right else f"no, {self.tries}", done=right, reward=float(right))

    @property
    def state(self):
        return State(step_count=self.tries)


if __name__ == "__main__":
    app = create_fastapi_app(Safe, Try, Seen, max_concurrent_envs=2)
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")

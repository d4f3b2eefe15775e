"""Small environments and tools as users of other libraries write them: for the tests, and to start from."""

from __future__ import annotations

import random
from typing import Any


class Vault:
    """An environment for TRL's `environment_factory`: a lock that opens with the right digits, in order."""

    def __init__(self, length: int = 2) -> None:
        self.length = length

    def reset(self, **kwargs: Any) -> str:
        """Choose the digits."""
        self.digits = [random.randrange(10) for _ in range(self.length)]
        self.right = 0
        return f"A lock with {self.length} digits."

    def turn(self, digit: int) -> str:
        """Turn the lock to a digit.

        Args:
            digit: 0 to 9.
        """
        if not 0 <= digit <= 9:
            raise ValueError("there are only the digits 0 to 9")
        self.right = self.right + 1 if digit == self.digits[self.right] else 0
        return "open" if self.right == self.length else "click" if self.right else "nothing"

    def listen(self, times: int = 1) -> str:
        """Listen at the lock."""
        return "tick " * times

    def get_reward(self) -> float:
        """Return the share of digits that are in place."""
        return self.right / self.length


class Patience:
    """An interaction for verl: the policy has to say one word several times, and is told how often."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.name = config.get("name", "interaction_agent")
        self.instances: dict[str, dict[str, Any]] = {}

    async def start_interaction(self, instance_id: str | None = None, word: str = "please", **kwargs: Any) -> str:
        """Begin an episode."""
        assert instance_id is not None
        self.instances[instance_id] = {"word": word, "said": 0}
        return instance_id

    async def generate_response(
        self, instance_id: str, messages: list[dict[str, Any]], **kwargs: Any
    ) -> tuple[bool, str, float, dict[str, Any]]:
        """Reply to the last message."""
        instance = self.instances[instance_id]
        instance["said"] += instance["word"] in messages[-1]["content"]
        score = await self.calculate_score(instance_id)
        return score == 1, f"{instance['said']} times, {len(messages)} messages", score, {"said": instance["said"]}

    async def calculate_score(self, instance_id: str, **kwargs: Any) -> float:
        """Return 1 once the word has been said often enough."""
        return float(self.instances[instance_id]["said"] >= self.config["times"])

    async def finalize_interaction(self, instance_id: str, **kwargs: Any) -> None:
        """Forget the episode."""
        del self.instances[instance_id]


class Ruler:
    """A tool for verl: it measures a text, and rewards short ones."""

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        self.config = config
        self.tool_schema = tool_schema
        self.name = tool_schema.function.name

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, Any]:
        """Begin."""
        return instance_id or "ruler", None

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> tuple[str, float, dict]:
        """Measure."""
        if not parameters["text"]:
            raise ValueError("there is nothing to measure")
        length = len(parameters["text"])
        return f"{length} letters", float(length <= self.config.get("short", 3)), {"length": length}

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """End."""

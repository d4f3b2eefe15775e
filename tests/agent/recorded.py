"""Run by `test_record.py`: train in a folder with a tool that never gives the same result twice.

`python recorded.py FOLDER KILL` ends itself with SIGKILL in the KILL-th call of the tool, 0 never;
`python recorded.py FOLDER replay` plays an episode of the run's record.
"""

import json
import os
import signal
import sys
from pathlib import Path

import attrs
from tests.core.training.tiny import TINY

import dovetail
from dovetail.cli import main as command
from dovetail.config import load
from dovetail.protocols import Call, Parsed
from dovetail.training.loop import train

SETTINGS = (
    *TINY,
    "train.agent_loop=tool_agent",
    "train.tools=['noise']",
    "train.tool_format=every_turn",
    "agent_loop.tool_agent.max_turns=3",
    "agent_loop.tool_agent.max_turn_tokens=8",
    "train.rewards=['noisy']",
    "eval.success=noisy",
    "train.max_prompt_tokens=16",
    "sampling.max_tokens=64",
    f"sampling.stop={tuple('0123456789abcdef=+<>/nrsw')}",
    "sft.steps=0",
    "eval.answer=None",
    "run.checkpoint_every=1",
)
LEFT = [0]


@attrs.frozen
class EveryTurn:
    """Reads every turn as a call."""

    def parse(self, text):
        return Parsed(calls=(Call("noise", {"text": text[:2]}),))

    def write(self, call):
        return call.arguments["text"]


def noise(text: str) -> str:
    """Return something else every time.

    Args:
        text: ignored.
    """
    LEFT[0] -= 1
    if LEFT[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.urandom(1).hex()


def noisy(conversations):
    """A reward that depends on what the tool said."""
    said = ["".join(m["content"] for m in messages if m["role"] == "tool") for messages in conversations]
    return [sum(map(ord, text)) % 7 / 7 for text in said]


def register() -> None:
    dovetail.register("tool", "noise", noise)
    dovetail.register("tool_format", "every_turn", EveryTurn)
    dovetail.register("reward", "noisy", noisy)


def said_again(folder: Path) -> int:
    """Return a prompt whose episode can be said again: bytes that are not text are recorded as U+FFFD."""
    lines = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    newest = {line["index"]: line["messages"] for line in lines if "messages" in line}
    return next(index for index, said in newest.items() if not any("\ufffd" in each["content"] for each in said))


def main(folder: str, what: str) -> None:
    register()
    if what == "replay":
        sys.exit(command(["play", "--replay", "--run", folder, "--index", str(said_again(Path(folder)))]))
    LEFT[0] = int(what)
    train(load(None, list(SETTINGS)), Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])

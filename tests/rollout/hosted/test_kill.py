"""A run whose completions come from other processes is killed: no prompt is lost, and none is trained on twice.

Samples of such engines need not be repeatable, so no bytes are compared. Every prompt has an ordinal instead. The reward
notes those that it scores, and the run keeps those that it trains on.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.core.training.tiny import TINY
from tests.programs import shared
from tests.rollout.hosted.test_fleet import FAKE, LINUX

from dovetail.data import prompt_stream
from dovetail.run.blocks import blocks
from dovetail.run.checkpoint import Checkpoints
from dovetail.run.summary import series
from dovetail_lab.kept import arrays_from

STEPS, PROMPTS, SAMPLES, AHEAD = 7, 3, 2, 2
RECORDS = [{"prompt": f"{n} =", "completion": f"{n}", "answer": f"{n}", "ordinal": n} for n in range(60)]
PATIENCE_SECONDS = 300

ENGINES = {
    "vanilla": ("rollout.vanilla.replicas=2",),
    "in flight": (
        "train.rollout=vllm",
        "train.in_flight=True",
        f"rollout.vllm.command='{FAKE}'",
        "rollout.vllm.probe=0.0",
        "model.decoder.head_dim=8",
    ),
    "vllm": (
        "train.rollout=vllm",
        f"rollout.vllm.flags={('--max-model-len', '64', '--enforce-eager')!r}",
        "model.decoder.width=64",
        "model.decoder.head_dim=32",
        "model.decoder.ffn=96",
    ),
}
needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here; `make test-vllm` does it"
)

PLUGIN = f'''
import json, os, time
import dovetail

LOG, SLOW, FIRST = os.environ["NOTED"], os.environ["SLOW"], int(os.environ["FIRST"])
done = []

@dovetail.hookimpl
def dovetail_components(register):
    register("reward", "noted", "noting:noted")
    register("loss_mask", "all_of_it", "noting:all_of_it")

def noted(completions, ordinal):
    """Note which prompts are scored."""
    with open(LOG, "a") as file:
        file.write(json.dumps([os.getpid(), [int(each) for each in ordinal]]) + "\\n")
    if SLOW == "sampler":
        time.sleep(0.3)
    done.append(1)
    return [float(len(text)) for text in completions]

def all_of_it(mask, ordinal):
    """Read the column, so that it is a field of the batch."""
    return mask.astype("float32") + 0.0 * ordinal[:, None]

@dovetail.hookimpl
def dovetail_step_end(phase, step, metrics):
    """With a slow trainer, the channel is full whenever a checkpoint is written; and who is to be killed waits for it."""
    while step >= int(os.environ["HELD_AT"]):
        time.sleep(60)
    while SLOW == "trainer" and FIRST + len(done) < min(step + {AHEAD} + 1, {STEPS}):
        time.sleep(0.01)
'''


class Killed:
    """The run, started again and again."""

    def __init__(self, place: Path, engine: str, every: int) -> None:
        self.place, self.folder, self.log = place, place / "run", place / "noted.jsonl"
        self.engine, self.every = ENGINES[engine], every
        (place / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
        (place / "noting.py").write_text(PLUGIN)
        (place / "empty.gin").write_text("")
        self.expected: dict[int, list[int]] = {}
        stream = prompt_stream(RECORDS, 0, PROMPTS)
        self.batches = [[record["ordinal"] for record in next(stream)] for _ in range(STEPS)]

    @property
    def cut(self) -> tuple[int, int]:
        """The number of batches that the newest checkpoint has trained on, and of those that it has in the channel."""
        if not (self.folder / "checkpoints").exists():
            return 0, 0
        checkpoints = Checkpoints(self.folder / "checkpoints", None)
        found = checkpoints.newest()
        checkpoints.close()
        return (found[1].data["taken"], len(found[1].data["messages"])) if found else (0, 0)

    def start(self, slow: str, held_at: int = STEPS + 1) -> subprocess.Popen[bytes]:
        first = sum(self.cut)
        sets = (
            *(each for each in TINY if not each.startswith(("train.task", "task."))),
            "sft.steps=0",
            f"train.steps={STEPS}",
            f"train.prompts={PROMPTS}",
            f"train.group_size={SAMPLES}",
            f"train.staleness={AHEAD}",
            "train.correction=['tis_token']",
            "train.task=records",
            f"task.records.path='{self.place / 'records.jsonl'}'",
            f"task.records.eval_path='{self.place / 'records.jsonl'}'",
            "train.rewards=['noted']",
            "train.loss_mask=all_of_it",
            *self.engine,
            "eval.every=None",
            f"run.checkpoint_every={self.every}",
            "run.keep_messages=True",
        )
        said = [part for override in sets for part in ("--set", override)]
        command = [sys.executable, "-m", "dovetail", "train", str(self.place / "empty.gin"), *said]
        command += ["--folder", str(self.folder), "--plugin", str(self.place / "noting.py")]
        more = {"NOTED": str(self.log), "SLOW": slow, "FIRST": str(first), "HELD_AT": str(held_at)}
        more["JAX_PLATFORMS"] = "cpu"
        more["VLLM_CPU_KVCACHE_SPACE"] = "1"
        more |= shared(self.place / "xla")
        with (self.place / "log").open("ab") as log:
            process = subprocess.Popen(command, env=os.environ | more, stdout=log, stderr=log)
        self.expected[process.pid] = [ordinal for batch in self.batches[first:] for ordinal in batch]
        return process

    def kill_after(self, steps: int, slow: str) -> None:
        """Kill it once so many steps are recorded."""
        process, metrics, deadline = (
            self.start(slow, steps),
            self.folder / "metrics.jsonl",
            time.monotonic() + PATIENCE_SECONDS,
        )
        try:
            while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= steps):
                assert process.poll() is None, (self.place / "log").read_text()
                assert time.monotonic() < deadline, (self.place / "log").read_text()
                time.sleep(0.005)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def finish(self) -> None:
        assert self.start("nobody").wait(PATIENCE_SECONDS) == 0, (self.place / "log").read_text()

    def scored(self, pid: int) -> list[int]:
        """The ordinals of the prompts that a process has scored, in order."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [ordinal for who, ordinals in lines if who == pid for ordinal in ordinals[::SAMPLES]]


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "every", "kills"),
    [
        # the next one has the same engine, and the one after it the same kills
        pytest.param("vanilla", 1, ((2, "trainer"), (4, "sampler")), marks=pytest.mark.exhaustive),
        ("vanilla", 3, ((2, "trainer"), (5, "trainer"))),
        ("in flight", 1, ((2, "trainer"), (4, "sampler"))),
        pytest.param("vllm", 1, ((2, "trainer"), (4, "sampler")), marks=needs_vllm),
    ],
    ids=["vanilla", "between checkpoints", "in flight", "vllm"],
)
def test_nothing_is_lost_and_nothing_trained_twice(tmp_path, engine, every, kills):
    run = Killed(tmp_path, engine, every)
    channels = []
    for steps, slow in kills:
        run.kill_after(steps, slow)
        channels.append(run.cut[1])
    run.finish()
    assert max(channels) >= AHEAD, "there were samples to lose"

    kept = [(head["batch"], arrays_from(head, body)) for head, body in blocks(run.folder / "messages.bin")]
    assert [number for number, _ in kept] == list(range(STEPS))
    for (_, arrays), batch in zip(kept, run.batches, strict=True):
        np.testing.assert_array_equal(arrays["ordinal"], np.repeat(batch, SAMPLES))
    trained = Counter(ordinal for _, arrays in kept for ordinal in arrays["ordinal"].astype(int).tolist())
    assert trained == Counter({ordinal: SAMPLES for batch in run.batches for ordinal in batch})

    for pid, expected in run.expected.items():
        scored = run.scored(pid)
        assert scored == expected[: len(scored)], "it begins behind what the checkpoint has, and leaves out nothing"
    last, left = list(run.expected.items())[-1]
    assert run.scored(last) == left, "the last process has sampled all that was left"
    times = Counter(ordinal for pid in run.expected for ordinal in run.scored(pid))
    assert every == 1 or max(times.values()) > 1, "what was sampled after a checkpoint is sampled again"
    assert max(value for _, value in series(run.folder, "staleness/max")) <= AHEAD

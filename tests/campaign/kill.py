"""kill -9 at random moments, again and again, until a run is done: not one byte may differ from an undisturbed one.

Runs are processes with the compiler options that users have: what a suite leaves out to be fast may be what is not the
same twice. They share a folder of compiled programs, and differ in everything that a checkpoint has to hold.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import jax
import numpy as np
from tests.core.training.several import free_port, newest_state
from tests.core.training.tiny import TINY
from tests.programs import shared

PATIENCE_SECONDS = 600
RECORDS = ("metrics.jsonl", "samples.jsonl", "eval.jsonl")
LONGER = (*TINY, "sft.steps=6", "train.steps=10", "run.checkpoint_every=3")
"""Further than one process gets between two kills."""

FAKE = Path(__file__).parents[1] / "rollout" / "fake_vllm.py"
"""It answers as vLLM's server does, the same for the same seed, which a real one need not."""

CONFIGURATIONS: dict[str, tuple[str, ...]] = {
    "critic, two controllers, several epochs": (
        "train.advantage=gae",
        "train.kl_in=reward",
        "train.kl_coef=0.1",
        "train.kl_controller=adaptive",
        "train.entropy_controller=adaptive",
        "train.entropy_coef=0.01",
        "train.epochs=2",
        "train.mini_batch_size=8",
        "critic.warmup_steps=2",
    ),
    "LoRA over a quantised base": (
        "train.adapter=lora",
        "adapter.lora.rank=2",
        "adapter.lora.dropout=0.5",
        "adapter.lora.quantise_base=int8",
        "sft.steps=0",
        "train.steps=12",
    ),
    "group filter, curriculum, replay": (
        "train.group_filter=nonzero_variance",
        "train.refill_rounds=2",
        "train.curriculum=difficulty",
        "train.replay=recent",
        "train.correction=['tis_token']",
        "replay.recent.groups=2",
    ),
    "estimator with a state, moving reference": (
        "train.advantage=rae",
        "train.kl_coef=0.1",
        "roles.reference=ema",
        "train.optimizer=muon",
    ),
    "sampling ahead": (
        "train.staleness=2",
        "train.correction=['tis_token']",
        "train.curriculum=difficulty",
        "train.group_filter=nonzero_variance",
    ),
    "more prompts than a step needs, ahead": (
        "train.staleness=1",
        "train.correction=['tis_token']",
        "train.group_filter=nonzero_variance",
        "train.oversample=4",
    ),
    "engines in processes of their own": (
        "rollout.vanilla.replicas=2",
        "train.staleness=1",
        "train.correction=['tis_token']",
        "train.group_filter=nonzero_variance",
    ),
    "a server of completions": (
        "train.rollout=vllm",
        f"rollout.vllm.command='{sys.executable} {FAKE}'",
        "rollout.vllm.probe=0",  # it makes completions up from their seeds, and no policy would
        "train.correction=['tis_token']",
        "train.staleness=1",
    ),
    "several processes": ("mesh.fsdp=2", "train.kl_coef=0.1", "train.epochs=2", "train.mini_batch_size=8"),
    "sweep": (),
    "population": (),
}
SWEEP = ("--grid", "train.lr=1e-2,3e-3", "--seeds", "2")
MANY = {"sweep": (*SWEEP, "--jobs", "1"), "population": (*SWEEP, "--vectorize", "4")}
"""Those that are many runs; what they are started with."""
PROCESSES = {"several processes": 2}
"""Those that are one run of so many processes, one of which is killed, and the others end by themselves."""


@attrs.frozen(kw_only=True)
class Run:
    """One configuration in one folder."""

    name: str
    folder: Path
    config: Path

    def commands(self) -> list[list[str]]:
        """What a user would type, for each process of the run."""
        sets = [part for override in (*LONGER, *CONFIGURATIONS[self.name]) for part in ("--set", override)]
        verb = ["sweep", "run"] if self.name in MANY else ["train"]
        more = MANY.get(self.name, ())
        one = [sys.executable, "-m", "dovetail", *verb, str(self.config), "--folder", str(self.folder), *sets, *more]
        if (count := PROCESSES.get(self.name, 1)) == 1:
            return [one]
        met = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", str(count), "--deadline", "10"]
        return [[*one, *met, "--process", str(index)] for index in range(count)]

    def start(self) -> list[subprocess.Popen[bytes]]:
        """Start it, or go on with it."""
        environment = os.environ | shared(self.config.parent / "xla") | {"JAX_PLATFORMS": "cpu"}
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_suffix(".log").open("ab") as log:
            return [
                subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
                for command in self.commands()
            ]

    def finish(self) -> float:
        """Run it to its end; return the seconds that it took."""
        began = time.monotonic()
        self.see_that_done(self.start())
        return time.monotonic() - began

    def kill_after(self, seconds: float, victim: float) -> bool:
        """Start it, and kill it after a while; false if it ended before.

        Of a run of several processes one is killed, which `victim` says, from 0 to 1; else, all that it has started.
        """
        processes = self.start()
        try:
            processes[0].wait(seconds)
        except subprocess.TimeoutExpired:
            one = processes[int(victim * len(processes))]
            for pid in self.processes() if len(processes) == 1 else [one.pid]:
                with_no_error(os.kill, pid, signal.SIGKILL)
            for process in processes:
                process.wait(PATIENCE_SECONDS)
            return True
        self.see_that_done(processes)
        return False

    def see_that_done(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        """Wait for processes, which have to succeed."""
        if any(statuses := [process.wait(PATIENCE_SECONDS) for process in processes]):
            raise RuntimeError(f"{self.name}: status {statuses}:\n{self.last_words()}")

    def processes(self) -> Iterator[int]:
        """Yield the processes that name this folder, the workers of a sweep among them."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                words = with_no_error((entry / "cmdline").read_bytes) or b""
                if str(self.folder).encode() in words.split(b"\0"):
                    yield int(entry.name)

    def last_words(self) -> str:
        """Return the end of what it has printed."""
        return self.folder.with_suffix(".log").read_text(errors="replace")[-3000:]

    def outcome(self) -> dict[str, Any]:
        """Return the records, and the arrays of the newest checkpoint, of every run in the folder."""
        runs = sorted(path.parent for path in self.folder.rglob("metrics.jsonl"))
        found: dict[str, Any] = {}
        for run in runs:
            where = str(run.relative_to(self.folder))
            found |= {f"{where}/{name}": (run / name).read_bytes() for name in RECORDS if (run / name).exists()}
            number, state = newest_state(run)
            for path, leaf in jax.tree_util.tree_leaves_with_path(state):
                found[f"{where}/checkpoint {number}{jax.tree_util.keystr(path)}"] = np.asarray(leaf).tobytes()
        return found


def with_no_error(call: Any, *arguments: Any) -> Any:
    """Call what may find that a process is gone."""
    try:
        return call(*arguments)
    except OSError:
        return None


def unlike(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return what is in only one of two outcomes, or not the same."""
    return sorted(key for key in one | other if one.get(key) != other.get(key))


def campaign(folder: Path, names: Sequence[str], times: int, seed: int) -> dict[str, dict[str, Any]]:
    """Kill each configuration its share of times; return what was done, and what differs."""
    chance, found = random.Random(seed), {}
    (folder / "empty.gin").parent.mkdir(parents=True, exist_ok=True)
    (folder / "empty.gin").write_text("")
    for index, name in enumerate(names):
        share = times // len(names) + (index < times % len(names))
        place = folder / str(index)
        calm = Run(name=name, folder=place / "undisturbed", config=folder / "empty.gin")
        killed = Run(name=name, folder=place / "killed", config=folder / "empty.gin")
        calm.finish()  # compiles
        again = Run(name=name, folder=place / "again", config=folder / "empty.gin")
        seconds = again.finish()
        kills = starts = 0
        done = []
        while kills < share and starts < 3 * share:
            starts += 1
            if killed.kill_after(chance.uniform(0.1, 0.9) * seconds, chance.random()):
                kills += 1
            else:  # it was done before; from the beginning once more
                done.append(killed)
                killed = attrs.evolve(killed, folder=place / f"killed-{starts}")
        killed.finish()
        expected = calm.outcome()
        differs = sorted({key for run in (*done, killed) for key in unlike(expected, run.outcome())})
        alone = unlike(expected, again.outcome())
        found[name] = {"kills": kills, "compared": len(expected), "differs": differs[:10], "differs alone": alone[:10]}
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    return found

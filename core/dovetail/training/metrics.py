"""Metrics and timings of a step."""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any, Final

import jax
import numpy as np

from dovetail.host.rewards import means_of
from dovetail.host.sampling import Sampled
from dovetail.progress import COMPILED, WORTH_TELLING
from dovetail.protocols import Completions, Episodes
from dovetail.spans import TRAINER, Span, note, now
from dovetail.step.parts import Peak, Sums


def rollout_metrics(sampled: Sampled) -> dict[str, float]:
    """Return metrics of rewards, lengths and truncation of a step's completions."""
    scores, lengths = sampled.scores, sampled.completions.mask.sum(axis=1)
    unscored = np.isnan(scores.total)
    metrics = {
        "reward/mean": float(np.nanmean(scores.total)) if not unscored.all() else 0.0,
        "reward/std": float(np.nanstd(scores.total)) if not unscored.all() else 0.0,
        "completion/length_mean": float(lengths.mean()),
        "completion/length_max": float(lengths.max()),
        "completion/truncated": float(sampled.completions.truncated.mean()),
    }
    if unscored.any():
        metrics["reward/unscored"] = float(unscored.mean())
    if (failed := sampled.completions.finish == "error").any():
        metrics["completion/failed"] = float(failed.mean())
    if sampled.completed.episodes is not None:
        metrics |= episode_metrics(sampled.completed.episodes)
    return metrics | scores.means() | means_of("process_reward", sampled.process_metrics)


def staleness_metrics(drawn: Completions, step: int) -> dict[str, float]:
    """Return metrics of the number of updates between the weights that sampled a token and those of the step."""
    age = (step - drawn.versions) * drawn.mask
    mean = float(age.sum() / max(1, drawn.mask.sum()))
    return {"staleness/mean": mean, "staleness/max": float(age.max())}


def episode_metrics(episodes: Episodes) -> dict[str, float]:
    """Return means over episodes, which count equally whatever their lengths, and the shares of the reasons to end."""
    turns, calls = episodes.turn_mask.sum(axis=1), episodes.tool_calls
    metrics = {
        "episode/turns_mean": float(turns.mean()),
        "episode/turns_max": float(turns.max()),
        "episode/turn_rewards": float(episodes.turn_rewards.sum(axis=1).mean()),
        "episode/tool_calls": float(calls.mean()),
        "episode/tool_errors": float(episodes.tool_errors.mean()),
    }
    ends = {f"episode/ended/{end}": float((episodes.ends == end).mean()) for end in np.unique(episodes.ends)}
    return means_of("episode", episodes.metrics) | metrics | ends


def means(sums: Sums) -> dict[str, float]:
    """Fetch metric sums in one transfer and return the means; metrics with a count of zero are left out."""
    host = jax.device_get(sums)
    peaks = {name: float(found.value) for name, found in host.items() if isinstance(found, Peak)}
    sums_and_counts = {name: found for name, found in host.items() if name not in peaks}
    average = {name: float(total / count) for name, (total, count) in sums_and_counts.items() if count > 0}
    return dict(sorted((average | peaks).items()))


def memory() -> dict[str, float]:
    """Return `memory/arrays`, the bytes of all live arrays, and the peak memory of devices that report it."""
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use", 0) for device in jax.local_devices()]
    arrays = {"memory/arrays": float(sum(array.nbytes for array in jax.live_arrays()))}
    return arrays | ({"memory/peak": float(max(peaks))} if any(peaks) else {})


@functools.cache
def _compilations() -> list[float]:
    """Return the list of this process's compilation times in seconds, which grows from the first call on."""
    found: list[float] = []

    def heard(event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED:
            found.append(duration_secs)
            if duration_secs > WORTH_TELLING:
                ended = now()
                note(Span("compiler", None, "compiling", ended - duration_secs, ended))

    jax.monitoring.register_event_duration_secs_listener(heard)
    return found


WAITED: Final = "channel"
"""The name of the time during which a program has waited for the other one."""


class Clock:
    """Wall-clock seconds between the marks of one step; the time of a mark is that since the previous mark."""

    def __init__(self, step: int | None = None) -> None:
        """Start the clock of a step of reinforcement learning, counted from 1; other clocks have none."""
        self._compiled = len(_compilations())
        self._step = step
        self._began = now()
        self._marks: list[tuple[float, str]] = []
        self._watchers: list[threading.Thread] = []
        self._noted: dict[str, float] = {}

    def note(self, timings: dict[str, float]) -> None:
        """Add the timings of another clock under their names."""
        self._noted |= timings

    def mark(self, name: str) -> None:
        """Set a mark now."""
        self._marks.append((now(), name))

    def mark_when_ready(self, name: str, arrays: Any) -> None:
        """Set a mark when arrays have been computed, without blocking: the next call can be dispatched meanwhile.

        The arrays must not be donated.
        """

        def watch() -> None:
            with contextlib.suppress(Exception):  # the code that uses the arrays gets the same error
                jax.block_until_ready(arrays)
            self.mark(name)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        self._watchers.append(watcher)

    def timings(self, tokens: int, of: str = "time") -> dict[str, float]:
        """Return the timings of the step, and record its spans.

        The trainer's are `time/*`, including completion tokens per second of the whole step if there are tokens, and
        `compile/*` if something was compiled. Those of another program have its name, `of`, in place of `time`.
        """
        program = TRAINER if of == "time" else of
        for watcher in self._watchers:
            watcher.join()
        found: dict[str, float] = {}
        last = self._began
        for moment, name in sorted(self._marks):
            found[f"{of}/{name}"] = found.get(f"{of}/{name}", 0.0) + moment - last
            note(Span(program, self._step, name, last, moment))
            last = moment
        found[f"{of}/step"] = now() - self._began
        if f"{of}/{WAITED}" in found:
            found[f"idle/{program}"] = found[f"{of}/{WAITED}"] / found[f"{of}/step"]
        if tokens:
            found["time/tokens_per_second"] = tokens / found["time/step"]
        if of == "time" and (compiled := _compilations()[self._compiled :]):
            found |= {"compile/programs": float(len(compiled)), "compile/seconds": sum(compiled)}
        return found | self._noted

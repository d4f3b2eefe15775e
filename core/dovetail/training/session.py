"""An open run: its pieces, its folder, and the destinations of its records."""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import jax
import numpy as np

from dovetail.config import Config
from dovetail.devices import processes
from dovetail.devices.spanning import shared, whole
from dovetail.errors import DovetailError, DovetailWarning, RunError, printable
from dovetail.hookspecs import RunInfo
from dovetail.host.prompts import LengthReport
from dovetail.progress import Watcher, begin, watched_by
from dovetail.protocols import Sink
from dovetail.registry import Component, plugin_manager
from dovetail.registry.calls import tell
from dovetail.registry.places import first_line
from dovetail.run.best import check_best, scores
from dovetail.run.checkpoint import Checkpoints, Saved, abstract
from dovetail.run.files import records, writing
from dovetail.run.folder import RunFolder, follow_folder, open_folder
from dovetail.run.sources import kept_in
from dovetail.spans import Span, recorded, span
from dovetail.training.channels import Opening
from dovetail.training.not_finite import NO_RATE, USUAL, cure
from dovetail.training.order import Task, tasks
from dovetail.training.setup import Setup, set_up

SFT: Final = "sft"
RL: Final = "rl"

Sinks = list[tuple[Component, Sink]]
"""Open sinks, each with the component that opened it."""


@attrs.define(kw_only=True)
class Run:
    """The data that both phases share: the pieces, the folder, and the destinations of records."""

    setup: Setup
    folder: RunFolder
    checkpoints: Checkpoints
    sinks: Sinks
    resumed: tuple[int, Saved] | None
    spans: deque[Span]
    opening: Opening | None = None
    """Opens the source of batches, if the run does not sample."""
    evaluated: dict[int, float] = attrs.field(factory=dict)
    """The values of `run.keep_best`, by the number of the checkpoint."""
    last: dict[str, float] = attrs.field(factory=dict)
    step: int = 0
    _good: tuple[Any, Saved] | None = None
    """The newest state that a failing run may still save, with what is saved beside it."""
    _saved: int = 0
    """The number of the newest checkpoint."""

    @property
    def config(self) -> Config:
        """The run's config."""
        return self.setup.config

    def observe(self, hook: str, **what: Any) -> None:
        """Call the observers of the run, in the process that owns it."""
        if processes.is_first():
            at = self.folder
            info = RunInfo(folder=at.path, run_id=at.run_id, config_id=at.config_id, config=self.config)
            tell(plugin_manager(), hook, run=info, **what)

    def resumes(self, phase: str) -> Saved | None:
        """Return the checkpoint to resume from, if it belongs to this phase."""
        return self.resumed[1] if self.resumed and self.resumed[1].phase == phase else None

    def restore(self, like: Any, *spent: Any) -> Any:
        """Return the newest checkpoint's state, in the form of `like`.

        Its arrays take the place of those in `spent`, as an update's would: two states need not fit on the devices.
        """
        assert self.resumed is not None, "only a resumed run restores"
        target = abstract(shared(like, self.setup.devices.mesh))
        for array in filter(lambda x: isinstance(x, jax.Array), jax.tree.leaves(spent)):
            array.delete()
        return self.checkpoints.restore(self.resumed[0], target)

    def record(
        self,
        phase: str,
        step: int,
        metrics: dict[str, float],
        timings: dict[str, float],
        keep: Callable[[], None] | None = None,
    ) -> None:
        """Write one step to the journal, `keep` the state that belongs to it, and tell the sinks and the observers.

        What these raise then loses no step, and a resumed run writes nothing twice.
        """
        self.last |= metrics
        if phase == RL:
            self.evaluated |= scores(self.config, [{"step": step, **metrics}])
        self.step = max(step, self.step if phase == RL else 0)  # an evaluation's weights may be a few steps old
        self.folder.journal.metrics(phase, step, metrics)
        self.folder.journal.timings(phase, step, timings)
        self.write_spans(phase, step)
        # saving needs all processes together, which a failing run cannot guarantee
        if keep and not processes.several():
            keep()
        for component, sink in self.sinks:
            with component.named():
                sink.write(step, metrics | timings)
        told = metrics | timings
        # an evaluation does not have the metrics of a step, and the first precedes all steps
        if any(name.startswith("eval/") for name in metrics):
            self.observe("dovetail_evaluation", step=step, metrics=told)
        else:
            self.observe("dovetail_step_end", phase=phase, step=step, metrics=told)

    def write_spans(self, phase: str, step: int) -> None:
        """Write what any program of the run has done since the last call; another one may be adding to it."""
        if ended := [self.spans.popleft() for _ in range(len(self.spans))]:
            self.folder.journal.spans(phase, step, ended)

    def checkpoint(self, phase: str, step: int, state: Any, data: dict[str, Any]) -> Path | None:
        """Save the state after `step` steps of a phase; return its folder, or None if it already exists."""
        return self._save(state, Saved(phase=phase, step=step, data=data, journal=self.folder.journal.position))

    def _save(self, state: Any, saved: Saved) -> Path | None:
        self.forget()  # where this cannot be saved, a second try would fail, too
        phase, step = saved.phase, saved.step
        number = step if phase == SFT else self.config.sft.steps + step
        if number <= max(self._saved, self.resumed[0] if self.resumed else 0):
            return None
        begin("checkpoint")
        self.folder.journal.sync()
        with span("checkpoint", step if phase == RL else None):
            path = self.checkpoints.save(number, shared(state, self.setup.devices.mesh), saved)
        self._saved = number
        self.observe("dovetail_checkpoint", step=step, folder=path)
        return path

    def keep(self, phase: str, step: int, state: Any, data: dict[str, Any]) -> None:
        """Remember the state after `step` steps and the records so far, with which it is saved if the run fails."""
        journal = self.folder.journal.position
        self._good = state, Saved(phase=phase, step=step, data=copy.deepcopy(data), journal=journal)

    def forget(self) -> None:
        """Forget the remembered state, because an update reuses its memory, and the new values may be NaN."""
        self._good = None

    def save_good(self) -> None:
        """Save the remembered state of a failing run."""
        if self._good is None or not self._good[1].step:
            return
        state, saved = self._good
        what = f"the state after {saved.phase} step {saved.step}"
        with _second(f"{what} is not saved"):
            if self._save(state, saved):
                print(f"saved {what}", file=sys.stderr)

    def tell(self, *reports: LengthReport) -> None:
        """Tell the user about texts that exceed a limit."""
        for report in reports:
            if report.too_long:
                processes.say(str(report))

    def due(self, step: int, total: int) -> bool:
        """Return whether a checkpoint is due after `step` steps."""
        return step == total or step % self.config.run.checkpoint_every == 0

    def evaluates(self, step: int, total: int) -> bool:
        """Return whether an evaluation is due after `step` steps of reinforcement learning, including step 0."""
        every = self.config.eval.every
        if every is None or (step == 0 and not self.config.eval.at_start):
            return False
        return step in (total, *self.folder.ends) or step % every == 0

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Return all tasks of the sampler in reinforcement learning, in order."""
        train = self.config.train
        evaluates = partial(self.evaluates, total=train.steps)
        return tasks(train.steps, train.staleness, evaluates, self.folder.ends)

    def stop_if_not_finite(
        self,
        phase: str,
        step: int,
        metrics: Mapping[str, float],
        watched: tuple[str, ...],
        batch: Mapping[str, Any],
    ) -> None:
        """Stop a run whose loss or gradient is not finite, keeping the batch that caused this.

        Raises:
            RunError: naming the metric, the step, the file of the batch, the last good checkpoint, and where to look.
        """
        bad = [name for name in watched if name in metrics and not np.isfinite(metrics[name])]
        if not bad:
            return
        dump = self.folder.path / f"not-finite-{phase}-{step + 1}.npz"
        arrays = whole(dict(batch))
        if processes.is_first():
            with writing(dump):
                np.savez_compressed(dump, allow_pickle=False, **arrays)
        kept = "there is no checkpoint yet"
        if numbers := self.checkpoints.numbers:
            kept = f"the last good checkpoint is {numbers[-1]} in '{self.folder.checkpoints}'"
        first = cure(self.setup.algorithm, bad[0], metrics, arrays) if phase == RL else f"{NO_RATE}: look at the batch"
        advice = USUAL if step else first
        raise RunError(
            f"{bad[0]} is {metrics[bad[0]]} at {phase} step {step + 1}; the batch is in '{dump}'; {kept}. {advice}"
        )


@contextmanager
def open_run(config: Config, path: Path, *, only_sft: bool = False, opening: Opening | None = None) -> Iterator[Run]:
    """Open the folder and build the pieces of a run; everything is closed at the end, whatever happens."""
    check_best(config)
    with ExitStack() as stack:
        folder = processes.after_first(lambda: (open_folder if processes.is_first() else follow_folder)(path, config))
        stack.callback(folder.close)
        stack.enter_context(kept_in(folder.path, writes=processes.is_first()))
        spans = stack.enter_context(recorded())
        evaluated: dict[int, float] = {}
        checkpoints = Checkpoints(folder.checkpoints, config.run.keep_checkpoints, evaluated)
        stack.callback(checkpoints.close)
        resumed = checkpoints.newest()
        if resumed:
            processes.say(printable(resumption(config, resumed[1], path, only_sft=only_sft)), file=sys.stderr)
        start = resumed[1].step if resumed and resumed[1].phase == RL else 0
        sinks = Sinks()

        def open_records() -> None:
            folder.journal.rewind(resumed[1].journal if resumed else {})
            if processes.is_first():  # which alone removes checkpoints
                evaluated.update(scores(config, records(path / "metrics.jsonl")))
                sinks.extend(stack.enter_context(_opened_sinks(config, path, start)))

        setup = set_up(config, folder.path, only_sft=only_sft, samples=opening is None, before_loading=open_records)
        stack.enter_context(setup.devices.use())
        run = Run(
            setup=setup,
            folder=folder,
            checkpoints=checkpoints,
            sinks=sinks,
            resumed=resumed,
            evaluated=evaluated,
            step=start,
            spans=spans,
            opening=opening,
        )
        if not resumed:
            run.tell(*setup.reports)
        with _observed(run):
            yield run


def resumption(config: Config, saved: Saved, path: Path, *, only_sft: bool = False) -> str:
    """Return what a command does that opens a run with a checkpoint again: it resumes, or nothing is left to do."""
    if only_sft and (saved.phase == RL or saved.step == config.sft.steps):
        return f"the warm start of this run is finished; nothing is trained, its records are in '{path}'"
    total = config.train.steps if saved.phase == RL else config.sft.steps
    if saved.phase == RL and saved.step == total:
        return (
            f"this run is finished; nothing is trained, its records are in '{path}'. To train on, add --folder '{path}'"
            f" --set train.steps=N, more than {total}; to train again, set run.seed or another --folder"
        )
    return f"resuming after {saved.phase} step {saved.step} of {total}"


@contextmanager
def _opened_sinks(config: Config, path: Path, start: int) -> Iterator[Sinks]:
    """Open the sinks of a run that has done `start` steps; those that watch its activities are notified of them."""
    with ExitStack() as stack:
        sinks = Sinks()
        for choice in config.several("run.sinks"):
            with choice.component.named("open"):
                sink = choice.bind().open(path, config.train.steps, start)
            if not hasattr(sink, "write"):
                raise choice.component.wrong(f"returned {sink!r:.80} from `open`; return an open sink", "open")
            stack.push(_closing(choice.component, sink))
            sinks.append((choice.component, sink))
        stack.enter_context(watched_by(*(sink for _, sink in sinks if isinstance(sink, Watcher))))
        yield sinks


def _closing(component: Component, sink: Sink) -> Callable[..., None]:
    """Return how a sink is closed; that it cannot write the rest does not hide what ended the run."""

    def close(kind: type[BaseException] | None, error: BaseException | None, *where: Any) -> None:
        with contextlib.suppress(*([Exception] if error else [])), component.named():
            sink.close()

    return close


@contextmanager
def _observed(run: Run) -> Iterator[None]:
    """Tell the observers of the beginning of a run, and how it ends; the last good state of one that fails is saved."""
    folder = run.folder
    ids = {"config_id": folder.config_id, "run_id": folder.run_id}
    run.observe("dovetail_run_start", folder=folder.path, config=run.config, setup=run.setup, **ids)
    status = "failed"
    try:
        yield
        status = "done"
    except KeyboardInterrupt:
        status = "stopped"
        run.save_good()
        raise
    except Exception:
        run.save_good()
        raise
    finally:
        with contextlib.suppress(RunError):  # a full disk has already ended the run with its own error
            run.write_spans(RL, run.step)
        with contextlib.nullcontext() if status == "done" else _second("an observer failed, too"):
            run.observe("dovetail_run_end", status=status, step=run.step)


@contextmanager
def _second(what: str) -> Iterator[None]:
    """Warn of an error that would hide the one which has ended the run."""
    try:
        yield
    except Exception as error:
        why = error if isinstance(error, DovetailError) else first_line(error)
        warnings.warn(f"{what}: {why}", DovetailWarning, stacklevel=3)

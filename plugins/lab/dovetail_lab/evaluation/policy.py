"""A policy opened to complete prompts, without anything that trains it: what `eval`, `generate` and `export` need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
from flax import nnx

from dovetail.config import Config, config_id
from dovetail.devices.mesh import Devices
from dovetail.errors import RunError
from dovetail.host.completer import Completer
from dovetail.protocols import OpenLoop, RolloutEngine, Task, Tokenizer, Weights
from dovetail.run.checkpoint import Checkpoints
from dovetail.run.files import read_record, writing
from dovetail.run.folder import CONFIG, IDENTITY
from dovetail.run.sources import kept_in
from dovetail.training.models import Models
from dovetail.training.session import SFT
from dovetail.training.texts import TOKENIZER, open_loop
from dovetail_lab.evaluation.checkpoints import NEWEST, find
from dovetail_lab.evaluation.room import Batch, Room

START = "start"
"""The weights that a config begins with."""


@attrs.frozen(kw_only=True)
class Policy:
    """A model with its tokenizer.

    `at` says which weights it has: `start`, or a run's phase and step, `rl-100`; `owner` whose they are, as the id of
    the run or config; `run` is the run's folder.
    """

    config: Config
    tokenizer: Tokenizer
    devices: Devices
    graphdef: Any
    weights: Weights
    at: str
    owner: str
    run: Path | None

    @contextmanager
    def engine(self) -> Iterator[RolloutEngine]:
        """Open the config's rollout engine with these weights, and close it."""
        rollout: Any = self.config.choice("train.rollout").bind()
        with self.devices.use(), closing(rollout.open(self.graphdef, self.weights, self.tokenizer)) as opened:
            yield opened

    @cached_property
    def loop(self) -> OpenLoop | None:
        """The config's agent loop; None where a completion is all there is."""
        return open_loop(self.config, self.tokenizer)

    def check_room(self, batch: Batch) -> None:
        """Refuse what would be completed at a time if it takes more memory than there is.

        Raises:
            DoesNotFit: with single changes that would fit.
        """
        models = Models(config=self.config, devices=self.devices, vocab_size=self.tokenizer.vocab_size)
        Room(models, False, batch).check()

    def completer(self, engine: RolloutEngine) -> Completer:
        """Return what completes prompts with an open engine."""
        limit = self.config.train.max_prompt_tokens
        return Completer(engine=engine, tokenizer=self.tokenizer, max_prompt_tokens=limit, loop=self.loop)

    def export(self, folder: Path, *, adapter: bool, dtype: str | None = None) -> list[Path]:
        """Write the model for other programs, whole with its tokenizer, or its adapter alone; see `ModelMaker.export`.

        Raises:
            DovetailError: if the model cannot be written so.
        """
        maker: Any = self.config.choice("train.model").bind()
        asked = {} if dtype is None else {"dtype": dtype}
        with writing(folder), _sources(self.run):
            files = maker.export(nnx.merge(self.graphdef, *self.weights), folder, adapter=adapter, **asked)
            if not adapter:
                self.tokenizer.save(folder)
        return files


def open_policy(config: Config, run: Path | None, checkpoint: str = NEWEST, batch: Batch | None = None) -> Policy:
    """Make or load the model that a config begins with, or take one of a run's checkpoints.

    Args:
        config: of the run, or one whose model has the same shapes.
        run: the run's folder, which may be training: nothing in it is changed. None: the config's own model.
        checkpoint: a step of the run, `newest`, or `best`, which is that of `run.keep_best`.
        batch: what will be completed at a time; None if nothing is.

    Raises:
        DoesNotFit: if it takes more memory than there is.
        RunError: if the folder does not hold this checkpoint, or one of another model.
    """
    tokenizer = open_tokenizer(config, run)
    devices = Devices.open(config.mesh)
    models = Models(config=config, devices=devices, vocab_size=tokenizer.vocab_size)
    with _sources(run):
        models.check_tokenizer("train", tokenizer)
        Room(models, run is not None, batch).check()
        graphdef, weights = models.policy()
    at, owner = START, config_id(config)
    if run is not None:
        weights, at = _restored(run, config, weights, checkpoint)
        owner = read_record(_existing(run / IDENTITY, run), run_id=str)["run_id"]
    return Policy(
        config=config,
        tokenizer=tokenizer,
        devices=devices,
        graphdef=graphdef,
        weights=weights,
        at=at,
        owner=owner,
        run=run,
    )


def open_tokenizer(config: Config, run: Path | None) -> Tokenizer:
    """Make the tokenizer of a config, or take a run's.

    Raises:
        RunError: if the folder holds none.
    """
    maker: Any = config.choice("train.tokenizer").bind()
    return maker.make(_Corpus(config)) if run is None else maker.load(_existing(run / TOKENIZER, run))


def _sources(run: Path | None) -> AbstractContextManager[None]:
    """Let names on a network stand for what they stood for when the run began."""
    return nullcontext() if run is None else kept_in(run, writes=False)


def _restored(run: Path, config: Config, weights: Weights, checkpoint: str) -> tuple[Weights, str]:
    steps = _existing(run / "checkpoints", run)
    with closing(Checkpoints(steps, keep=None)) as checkpoints:
        number = find(checkpoint, config, run, checkpoints)
        saved = checkpoints.metadata(number)
        path = ("params",) if saved.phase == SFT else (0, "params")
        trained = checkpoints.restore_part(number, path, weights.trained)
    return Weights(trained, weights.frozen), f"{saved.phase}-{saved.step}"


def _existing(path: Path, run: Path) -> Path:
    if path.exists():
        return path
    what = f"holds no {path.name} yet" if (run / CONFIG).exists() else f"is not a run folder: it holds no {CONFIG}"
    raise RunError(f"'{run}' {what}")


@attrs.frozen
class _Corpus(Sequence[str]):
    """The training texts of a config, read only if a tokenizer is trained on them."""

    config: Config

    @cached_property
    def _texts(self) -> Sequence[str]:
        task: Task = self.config.choice("train.task").bind()
        return task.corpus()

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: Any) -> Any:
        return self._texts[index]

"""Opens an engine whose model is hosted elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from flax import nnx

import dovetail
from dovetail.errors import ConfigError
from dovetail.protocols import ModelMaker, Tokenizer, Weights
from dovetail_rollout.hosted.engine import HostedEngine
from dovetail_rollout.hosted.fleet import Fleet
from dovetail_rollout.hosted.handover import Handover
from dovetail_rollout.hosted.host import Host
from dovetail_rollout.hosted.probe import Probe
from dovetail_rollout.hosted.restarts import Restarts
from dovetail_rollout.hosted.vanilla_process import Calls, VanillaProcess
from dovetail_rollout.kinds import Launcher, Place

START_SECONDS = 120.0
"""How long a process of ours may take to import JAX and read its weights."""
CALLS = 2
"""Calls for each replica of `vanilla` in a batch: added replicas take some, and fewer tokens are lost with one."""


@attrs.frozen(kw_only=True)
class Opening:
    """What is needed to open an engine.

    Attributes:
        name: of the component.
        host: the host, not yet started.
        folder: where the model was loaded from; None if it is a `model.decoder`.
        adapter: whether to hand over only the adapter.
        handover: where weights are written.
        restarts: how often within an hour a lost host is restarted.
        probe: how far its log-probabilities may be from ours; see `Probe.tolerance`.
        vocabulary_logps, compiles: see `HostedEngine`.
    """

    name: str
    host: Host
    folder: str | None
    adapter: bool
    handover: str | None
    restarts: int
    probe: float | None
    vocabulary_logps: bool = False
    compiles: bool = False

    def open(self, graphdef: Any, weights: Weights, tokenizer: Tokenizer) -> HostedEngine:
        """Write the weights, which are version 0, and start the host with them.

        Raises:
            ConfigError: if the weights cannot be written for other programs.
            RunError: if the host does not start, or samples from another model.
        """
        name, params = ("decoder", {}) if self.folder is None else ("pretrained", {"path": self.folder})
        maker: Any = dovetail.get("model", name).bind(**params)
        handover = Handover.open(self.handover, maker, graphdef, adapter=self.adapter, weights=weights)
        try:
            folder = handover.write(weights, 0)
        except ConfigError as error:
            handover.close()
            raise ConfigError(
                f"rollout '{self.name}': {error} (rollout.{self.name}.folder = {self.folder!r})"
            ) from error
        engine = self._start(handover, folder, nnx.merge(graphdef, *weights).vocab_size, tokenizer)
        try:
            Probe(graphdef=graphdef, weights=weights, tolerance=self.probe).check(engine)
        except BaseException:
            engine.close()
            raise
        return engine

    def open_folder(self, folder: Path, tokenizer: Tokenizer) -> HostedEngine:
        """Start the host with a Hugging Face folder; nobody here has its weights, so they are not compared."""
        maker: ModelMaker = dovetail.get("model", "pretrained").bind(path=str(folder))  # pyright: ignore[reportAssignmentType]
        model: Any = maker.abstract(tokenizer.vocab_size)
        handover = Handover.open(self.handover, maker, nnx.graphdef(model), adapter=self.adapter)
        return self._start(handover, folder, model.vocab_size, tokenizer)

    def _start(self, handover: Handover, folder: Path, vocab_size: int, tokenizer: Tokenizer) -> HostedEngine:
        engine = HostedEngine(
            name=self.name,
            host=self.host,
            handover=handover,
            folder=folder,
            vocab_size=vocab_size,
            eos_ids=tuple(tokenizer.eos_ids),
            pad_id=tokenizer.pad_id,
            decode=tokenizer.decode,
            restarts=Restarts(self.restarts),
            vocabulary_logps=self.vocabulary_logps,
            compiles=self.compiles,
        )
        try:
            self.host.start(folder)
        except BaseException:
            engine.close()
            raise
        return engine


def of_vanilla(vanilla: Any, launcher: Launcher) -> Opening:
    """Return the opening of a `rollout.vanilla` with replicas."""
    options = {name: getattr(vanilla, name) for name in ("slots", "shrink", "cache_dtype")}
    calls = Calls(at_once=vanilla.at_once, parts=CALLS * vanilla.replicas)

    def replica(place: Place) -> VanillaProcess:
        return VanillaProcess(place=place, options=options, start_seconds=START_SECONDS, sizes=calls)

    fleet = Fleet(
        name="vanilla",
        launcher=launcher,
        replica=replica,
        count=vanilla.replicas,
        restarts=vanilla.restarts,
        floor=vanilla.floor,
        call=calls.of,
    )
    return Opening(
        name="vanilla",
        host=fleet,
        folder=vanilla.folder,
        adapter=False,
        handover=None,
        restarts=0,
        probe=None,
        vocabulary_logps=True,
        compiles=True,
    )

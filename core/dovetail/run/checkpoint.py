"""Checkpoints with orbax: one folder per step, written aside and renamed, the newest few kept."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import attrs
import jax
import orbax.checkpoint as ocp

from dovetail.errors import RunError

START = "start"


@attrs.frozen(kw_only=True)
class Saved:
    """A checkpoint's place in the run: its phase, the steps done in it, and everything that is no array."""

    phase: str
    step: int
    data: dict[str, Any]
    journal: dict[str, int]


class Checkpoints:
    """The checkpoints of one run.

    Steps are numbered through both phases, so that the newest is always the last. A save that a crash interrupts
    leaves a folder that orbax never counts.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        """Open `folder`, keeping the `keep` newest checkpoints."""
        logging.getLogger("absl").setLevel(logging.ERROR)
        self._folder = folder.absolute()
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(self._folder / "steps", options=options)

    def newest(self) -> tuple[int, Saved] | None:
        """Return the newest checkpoint's number and place, if there is one."""
        number = self._manager.latest_step()
        if number is None:
            return None
        meta = self._manager.restore(number, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))["meta"]
        return number, Saved(**meta)

    def save(self, number: int, state: Any, saved: Saved) -> Path:
        """Write a checkpoint.

        Raises:
            RunError: if the disk is full or the folder unwritable; earlier checkpoints stay.
        """
        arguments = ocp.args.Composite(state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(attrs.asdict(saved)))
        try:
            self._manager.save(number, args=arguments, force=True)
        except (OSError, ValueError) as error:
            raise RunError(
                f"checkpoint {number} cannot be written in '{self._folder}': {error}; the earlier ones are kept"
            ) from error
        return self._folder / "steps" / str(number)

    def restore(self, number: int, like: Any) -> Any:
        """Return the state saved as `number`, with the shapes, types and shardings of `like`."""
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(_abstract(like)))
        return self._manager.restore(number, args=arguments)["state"]

    def save_start(self, params: Any) -> None:
        """Keep the weights with which RL begins: the reference policy."""
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(self._folder / START, params, force=True)

    def restore_start(self, like: Any) -> Any | None:
        """Return those weights, or None before they were saved."""
        if not (self._folder / START).exists():
            return None
        with ocp.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(self._folder / START, _abstract(like))

    def close(self) -> None:
        """Wait for what is being written."""
        self._manager.close()


def _abstract(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)

"""Checkpoints with orbax: one folder per step, written under another name and renamed; the newest are kept.

The best one can be kept, too, which is known only later: sampling may run ahead, so that an evaluation of some weights
ends after steps that follow them.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import attrs
import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

from dovetail.errors import RunError
from dovetail.interruptions import uninterrupted
from dovetail.run.best import best_of

START = "start"

P = ParamSpec("P")
T = TypeVar("T")

_ORBAX = threading.RLock()


def _one_at_a_time(method: Callable[P, T]) -> Callable[P, T]:
    """Serialise the threads of a population, because orbax numbers operations per process and would mix them up."""

    @functools.wraps(method)
    def locked(*arguments: P.args, **options: P.kwargs) -> T:
        with _ORBAX:
            return method(*arguments, **options)

    return locked


@attrs.frozen(kw_only=True)
class Saved:
    """The metadata of a checkpoint: its phase, the number of steps done in it, and all data that are not arrays."""

    phase: str
    step: int
    data: dict[str, Any]
    journal: dict[str, int]

    @property
    def is_plain(self) -> bool:
        """Whether it is of the right types; the phase is in the names of folders, and may be a stranger's."""
        counts = (self.step, *self.journal.values()) if isinstance(self.journal, dict) else (None,)
        whole = all(type(count) is int and count >= 0 for count in counts)
        return self.phase in ("sft", "rl") and whole and isinstance(self.data, dict)


@attrs.frozen
class _NewestAndBest(preservation_policy.PreservationPolicy):
    """Keeps the newest checkpoints and, among those that are still there, the one with the greatest score."""

    keep: int | None
    scores: Mapping[int, float]

    def should_preserve(
        self,
        checkpoints: Sequence[preservation_policy.PolicyCheckpointInfo],
        *,
        context: preservation_policy.PreservationContext,
    ) -> Sequence[bool]:
        numbers = [checkpoint.step for checkpoint in checkpoints]
        kept = set(numbers if self.keep is None else numbers[-self.keep :])
        if (best := best_of(numbers, self.scores)) is not None:
            kept.add(best)
        return [number in kept for number in numbers]


class Checkpoints:
    """The checkpoints of one run.

    Steps are numbered consecutively over both phases, so that the newest checkpoint has the greatest number. A save
    that was interrupted by a crash leaves a folder that orbax ignores.
    """

    @_one_at_a_time
    def __init__(self, folder: Path, keep: int | None, scores: Mapping[int, float] = MappingProxyType({})) -> None:
        """Open `folder`.

        Args:
            folder: the folder of the checkpoints.
            keep: how many of the newest are kept; None keeps all.
            scores: the values of evaluated checkpoints by number, which may grow; the one with the greatest is kept.
        """
        self._folder = folder.absolute()
        kept = _NewestAndBest(keep, scores)
        options = ocp.CheckpointManagerOptions(preservation_policy=kept, enable_async_checkpointing=False)
        try:
            self._manager = ocp.CheckpointManager(self._folder / "steps", options=options)
        except OSError as error:
            raise RunError(f"'{self._folder}' cannot be used for checkpoints: {error.strerror or error}") from error

    @property
    def numbers(self) -> list[int]:
        """The numbers of the checkpoints that are there, in order."""
        return sorted(self._manager.all_steps())

    def newest(self) -> tuple[int, Saved] | None:
        """Return the number and metadata of the newest checkpoint, if there is one."""
        number = self._manager.latest_step()
        return None if number is None else (number, self.metadata(number))

    @_one_at_a_time
    def metadata(self, number: int) -> Saved:
        """Return the metadata of a checkpoint.

        Raises:
            RunError: if it cannot be read.
        """
        try:
            meta = self._manager.restore(number, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))["meta"]
        except Exception as error:  # orbax passes on its storage's errors, which have many types
            raise self._unreadable(number, error) from error
        names = [field.name for field in attrs.fields(Saved)]
        if missing := [name for name in names if not isinstance(meta, dict) or name not in meta]:
            raise RunError(
                f"checkpoint '{self._folder / 'steps' / str(number)}' does not say its {' and '.join(missing)}: it is"
                " not one of this version of Dovetail"
            )
        saved = Saved(**{name: meta[name] for name in names})  # an older version may have stored more
        if not saved.is_plain:
            raise self._unreadable(number, ValueError("it says another kind of phase, step, data or journal"))
        return saved

    @_one_at_a_time
    def save(self, number: int, state: Any, saved: Saved) -> Path:
        """Write a checkpoint; a first signal to end the run is left until it has been written.

        Raises:
            RunError: if the disk is full or the folder is not writable; earlier checkpoints are kept.
        """
        arguments = ocp.args.Composite(state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(attrs.asdict(saved)))
        try:
            with uninterrupted():
                self._manager.save(number, args=arguments, force=True)
        except (OSError, ValueError) as error:
            raise RunError(
                f"checkpoint {number} cannot be written in '{self._folder}': {_why(error)}; the earlier ones are kept"
            ) from error
        return self._folder / "steps" / str(number)

    @_one_at_a_time
    def restore(self, number: int, like: Any) -> Any:
        """Return the state saved as `number`, with the shapes, types and shardings of `like`.

        Raises:
            RunError: if the checkpoint cannot be read.
        """
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(abstract(like)))
        try:
            return self._manager.restore(number, args=arguments)["state"]
        except Exception as error:
            raise self._unreadable(number, error) from error

    def _unreadable(self, number: int, error: Exception) -> RunError:
        return RunError(
            f"checkpoint '{self._folder / 'steps' / str(number)}' cannot be read ({_said(error)}); move it away to go"
            " on from the one before"
        )

    @_one_at_a_time
    def restore_part(self, number: int, path: tuple[int | str, ...], like: Any) -> Any:
        """Return one part of the state saved as `number`, such as the policy's parameters; the rest is not read.

        Raises:
            RunError: if the part has other shapes than `like`, or cannot be read.
        """
        try:
            return self._restore_part(number, path, like)
        except RunError:
            raise
        except Exception as error:
            raise self._unreadable(number, error) from error

    def _restore_part(self, number: int, path: tuple[int | str, ...], like: Any) -> Any:
        folder = self._folder / "steps" / str(number) / "state"
        with ocp.PyTreeCheckpointer() as checkpointer:
            described = checkpointer.metadata(folder).item_metadata
            if described is None:
                raise ValueError("it does not say what arrays it holds")
            saved = described.tree
            wanted = abstract(like)
            item = jax.tree.map(lambda _: ocp.PLACEHOLDER, saved, is_leaf=_is_array)
            *parents, last = path
            holder, found = item, saved
            for key in parents:
                holder, found = holder[key], found[key]
            _check_shapes(found[last], wanted, folder)
            holder[last] = wanted
            restore_args = jax.tree.map(_restore_args, item)
            restored = checkpointer.restore(folder, args=ocp.args.PyTreeRestore(item=item, restore_args=restore_args))
        for key in path:
            restored = restored[key]
        return restored

    @_one_at_a_time
    def save_start(self, params: Any) -> None:
        """Save the weights with which RL begins, those of the reference policy.

        Raises:
            RunError: if they cannot be written.
        """
        folder = self._folder / START
        try:
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(folder, params, force=True)
        except (OSError, ValueError) as error:
            raise RunError(f"'{folder}' cannot be written: {_why(error)}") from error

    @_one_at_a_time
    def restore_start(self, like: Any) -> Any | None:
        """Return the weights with which RL began, or None if they have not been saved yet.

        Raises:
            RunError: if they cannot be read.
        """
        folder = self._folder / START
        if not folder.exists():
            return None
        try:
            with ocp.StandardCheckpointer() as checkpointer:
                return checkpointer.restore(folder, abstract(like))
        except Exception as error:
            raise RunError(f"'{folder}' cannot be read ({_said(error)}); no other copy is kept") from error

    @_one_at_a_time
    def close(self) -> None:
        """Wait until pending checkpoints have been written."""
        self._manager.close()


def _why(error: Exception) -> str:
    """Return the system's reason why something could not be written, of which tensorstore tells a long story."""
    story = str(error)
    if code := re.search(r"os_error_code=\D*(\d+)", story):
        return os.strerror(int(code[1]))
    known = (os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO))
    reason = next((reason for reason in known if reason in story), None)
    return reason or getattr(error, "strerror", None) or _said(error)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape")


def _restore_args(leaf: Any) -> ocp.RestoreArgs:
    if leaf is ocp.PLACEHOLDER:
        return ocp.RestoreArgs()
    return ocp.ArrayRestoreArgs(sharding=leaf.sharding, global_shape=leaf.shape, dtype=leaf.dtype)


def _check_shapes(saved: Any, wanted: Any, folder: Path) -> None:
    """Refuse to restore weights into a model with other shapes; the message shows the first differences."""
    there, here = _shapes(saved), _shapes(wanted)
    differ = [name for name in sorted(there.keys() | here.keys()) if there.get(name) != here.get(name)]
    if differ:
        shown = "; ".join(
            f"{name}: {there.get(name, 'absent')} in it, {here.get(name, 'absent')} here" for name in differ[:3]
        )
        raise RunError(
            f"checkpoint '{folder.parent}' holds another model than the config makes: {len(differ)} parameters differ:"
            f" {shown}"
        )


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """Return shapes by path, without the parts that only saved or only live trees have (`value`, brackets)."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=_is_array)
    return {_name(path): tuple(leaf.shape) for path, leaf in leaves}


def _name(path: Any) -> str:
    words = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path]
    return ".".join(word for word in words if word != "value")


def abstract(tree: Any) -> Any:
    """Return the target of restoring: device arrays as shape, type and sharding; host arrays as they are."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) if isinstance(x, jax.Array) else x, tree
    )

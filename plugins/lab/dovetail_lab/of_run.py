"""What a run's folder says of how it was begun: its config, its single-file plugins, the code of its components."""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from dovetail.config import Config, dump, load
from dovetail.errors import DovetailError, DovetailWarning, RunError
from dovetail.registry import current
from dovetail.registry.one_file import SINGLE_FILE
from dovetail.run.code import changed_code
from dovetail.run.files import read_json
from dovetail.run.folder import CONFIG, ENVIRONMENT

WEIGHTS: Final = frozenset({"model", "architecture", "adapter", "tokenizer"})
"""The kinds that make a policy out of a checkpoint."""
COMPLETES: Final = WEIGHTS | {"rollout", "launcher", "agent_loop", "interaction", "tool", "tool_format", "task"}
"""Those that completions come from, too."""
SCORES: Final = COMPLETES | {"reward", "reward_manager", "answer"}
"""And those that say how good completions are."""
SHOWN: Final = 3
"""How many components with other code are named: those of another version of Dovetail may be all."""


def load_of_run(run: Path, overrides: Sequence[str] = (), *, trusted: bool) -> Config:
    """Return the config in a run's folder.

    Raises:
        RunError: if it names components of a single-file plugin that the run was begun with, and that is not loaded.
    """
    try:
        return load(run / CONFIG, overrides, trusted=trusted)
    except DovetailError as error:
        needed = [file for name, file in _single_files(run) if f"'{name}/" in str(error)]
        if not needed:
            raise
        given = " ".join(f"--plugin {file}" for file in needed)
        raise RunError(f"the run in '{run}' was begun with {given}; repeat this command with it") from error


def _single_files(run: Path) -> Iterator[tuple[str, str]]:
    """Yield the single-file plugins that a run was begun with and that are not loaded: name, and file, found from here.

    The record may be of a stranger, and of any form; what is not as expected is skipped.
    """
    try:
        start: Any = read_json(run / ENVIRONMENT)[-1]
        plugins, command = dict(start["plugins"]), [str(word) for word in start["command"]]
    except (OSError, ValueError, TypeError, LookupError):
        return
    loaded = {component.origin.distribution for component in current().components()}
    folder = str(start.get("folder", ""))
    words = [part for word in command for part in word.split("=", 1)]
    given = {Path(file).stem: file for option, file in pairwise(words) if option == "--plugin"}
    for name, version in plugins.items():
        if name not in loaded and str(version).startswith(SINGLE_FILE):
            file = given.get(name, f"{name}.py")
            yield name, file if folder == os.getcwd() else os.path.join(folder, file)


def warn_of_other_code(run: Path | None, config: Config, kinds: Collection[str], what: str = "") -> str:
    """Warn of components of some kinds, and of files, that have other code than when a run began.

    Args:
        run: the run's folder; None: there is nothing to compare.
        config: what is used now.
        kinds: of the components that matter.
        what: what else to say; `{mark}` stands for the mark that is returned.

    Returns:
        A mark of the code that differs, the same for the same code; empty if none does.
    """
    found = [] if run is None else changed_code(run, config)
    found = [each for each in found if each.component is None or each.component.kind in kinds]
    if not found:
        return ""
    digest = hashlib.sha256("\n".join(sorted(f"{each.what} {each.code}" for each in found)).encode())
    mark = f"code-{digest.hexdigest()[:8]}"
    named = ", ".join(f"{each.what}{each.place}" for each in found[:SHOWN])
    more = f" and of {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    said = f"the code of {named}{more} has changed since the run in '{run}' began, and the code of now is used"
    warnings.warn(f"{said}{what.format(mark=mark)}", DovetailWarning, stacklevel=2)
    return mark


def mark_of_settings(run: Path | None, config: Config, examples: int | None = None, *, trusted: bool = False) -> str:
    """Return a mark of the settings if they are not those of a run, the same for the same settings; else an empty text.

    Args:
        run: the run's folder; None: there is nothing to compare.
        config: what is used now.
        examples: how many of the examples are used; None: all.
        trusted: whether the run's config may name programs.
    """
    if run is None:
        return ""
    with contextlib.suppress(DovetailError):  # a config that cannot be read here is another one
        if examples is None and config == load_of_run(run, trusted=trusted):
            return ""
    return f"config-{hashlib.sha256(f'{dump(config)}{examples}'.encode()).hexdigest()[:8]}"

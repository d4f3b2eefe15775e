"""Where the files are that a config names by relative paths, so that a run can be read and resumed from any folder.

Components declare which hyperparameters name files: `dovetail.declares(files=("path",))`. Wherever Dovetail writes the
config of a run, `files.json` beside it has the folder in which each relative path was found:
`{"data/x.jsonl": "/home/me/work"}`. The values of the config stay as they are written, so that its id is the same, and
it compares equal, wherever a command is given. A name on a hub is no file, and is not noted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.run.files import read_json, write_whole

if TYPE_CHECKING:
    from dovetail.config.problems import Problems
    from dovetail.config.resolved import Choice, Config

FILES: Final = "files.json"
_BEGUN: ContextVar[Path | None] = ContextVar("begun", default=None)


@contextmanager
def begun_in(folder: Path | None) -> Iterator[None]:
    """Return a context in which configs are read to go on with what has begun in a folder, with the same files."""
    token = _BEGUN.set(folder)
    try:
        yield
    finally:
        _BEGUN.reset(token)


def noted(folder: Path) -> dict[str, str]:
    """Return the folders in which the files of a config were found, by the relative paths in it.

    The record may be of a stranger, and of any form; what is not as expected is skipped.
    """
    try:
        found = read_json(folder / FILES)
    except (OSError, ValueError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {text: where for text, where in pairs if isinstance(where, str) and os.path.isabs(where)}


def note_files(folder: Path, *configs: Config) -> None:
    """Note where the files of configs are; what is noted of one that is not there now stays.

    Raises:
        OSError: if it cannot be written.
    """
    found = {}
    for choice in (choice for config in configs for choice in config.choices.values()):
        for text in {text for value in _files(choice).values() for text in _texts(value)}:
            where = choice.found.get(text) or os.getcwd()
            if text and _is_there(where, text) and not os.path.isabs(os.path.expanduser(text)):
                found[text] = where
    before = noted(folder)
    if found.items() - before.items():
        write_whole(folder / FILES, json.dumps(before | found, indent=2, sort_keys=True) + "\n")


def locate(choice: Choice, read_from: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """Return the folders of those relative paths of a choice whose files are not looked for in the working folder.

    Args:
        choice: a component with its hyperparameters.
        read_from: the config files in which hyperparameters are set.
        problems: takes a warning about each file that is not where it was.
    """
    found = {}
    for name, value in _files(choice).items():
        # what is typed is meant from here, unless it goes on with what has begun
        folders = [Path(read_from[name]).parent] if read_from.get(name) else []
        for folder in filter(None, (*folders, _BEGUN.get())):
            there, key = noted(folder), f"{choice.component.label}.{name}"
            for text in _texts(value):
                if (where := there.get(text, os.getcwd())) == os.getcwd():
                    continue
                if _is_there(where, text) or not _is_there("", text):
                    found[text] = where
                if not _is_there(where, text):
                    problems.warn(choice.origins[name], _moved(key, text, where))
    return found


def where_begun(text: str) -> str:
    """Return a relative path with the folder that is noted of it by what has begun, in whose context this is called."""
    folder = _BEGUN.get()
    place = os.path.join(noted(folder).get(text, "") if folder else "", text)
    return place if os.path.exists(place) else text


def placed(value: Any, found: Mapping[str, str]) -> Any:
    """Return a value with the full paths of files that are in other folders than the working one.

    >>> placed(("a.jsonl", "b.jsonl"), {"a.jsonl": "/work"})
    ('/work/a.jsonl', 'b.jsonl')
    """
    return _changed(value, lambda text: os.path.join(found[text], text) if text in found else text)


def _moved(key: str, text: str, where: str) -> str:
    lost = f"{key} = {text!r} is not in '{where}', where it was when the run was started"
    if _is_there("", text):
        return f"{lost}; the one in '{os.getcwd()}' is taken"
    return (
        f"{lost}, nor in '{os.getcwd()}'; if it is needed, give the command in the folder that has it now, or add"
        f" --set {key}=PATH"
    )


def _files(choice: Choice) -> dict[str, Any]:
    """Return the hyperparameters of a choice that name files."""
    names = choice.component.declares.get("files", ())
    return {name: choice.params[name] for name in names if name in choice.params}


def _is_there(folder: str, text: str) -> bool:
    """Return whether there is a file or folder of that name, or a file before its last colon: `FILE.py:NAME`."""
    place = os.path.join(folder, text)
    return os.path.exists(place) or os.path.isfile(place.rpartition(":")[0])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value with another text for each text in it; the keys of a dict stay."""
    if isinstance(value, dict):
        return {key: _changed(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_changed(item, change) for item in value)
    return change(value) if isinstance(value, str) else value

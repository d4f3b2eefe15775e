"""Parse gin files and `--set` overrides into bindings, each with its location.

Only gin's grammar is used: its parser, none of its registries. A config is data, so `import` statements and
`@references`, which run code, are refused. Includes are relative to the including file, or name a shipped config of
dovetail or a plugin; a file that is included twice is read once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from gin import config_parser as gin

from dovetail.config.grammar import PARSE_ERRORS, Parser, Word, parse_value, reason
from dovetail.config.problems import Problems
from dovetail.errors import ConfigError, closest
from dovetail.registry import current
from dovetail.registry.compatibility import ENGINE
from dovetail.shipped import included, owner_of

RESOLVED = "# Every value of one configuration, defaults spelled out."
"""The first line of a configuration that Dovetail has written; in it, a name without an owner is a built-in one."""

DEPTH, LARGEST = 50, 16 << 20
"""How deeply includes may be nested, and the largest file in bytes."""

_KEY = re.compile(r"((?P<scope>[\w/]+)/)?(?P<path>\w[\w.-]*)")
_UNQUOTED = re.compile(r"[\w./:~+-]+")


@attrs.frozen(kw_only=True, eq=False)
class Binding:
    """`scope/path = value`; a path of one part defines a macro, of two a setting, of three a component's parameter."""

    scope: str = ""
    path: tuple[str, ...]
    value: Any
    place: str
    file: str = ""
    """The file it is in; empty for an override."""
    owner: str = ""
    """The distribution that ships the file, or Dovetail if Dovetail wrote it; empty for the user's own file.

    In such a file, a name without an owner means that distribution's component or else Dovetail's, regardless of what
    else is installed.
    """

    @property
    def key(self) -> str:
        """The key as it is written: scope, slash and path."""
        return f"{self.scope}/{'.'.join(self.path)}".lstrip("/")


@attrs.define
class Reading:
    """All bindings in the order in which they apply, and the problems with the text.

    `complete` is false if bindings may have been lost, so that checks which depend on all of them must not run.
    """

    bindings: list[Binding] = attrs.field(factory=list)
    problems: Problems = attrs.field(factory=Problems)
    complete: bool = True


def read(path: str | os.PathLike[str] | None, overrides: Sequence[str] = ()) -> Reading:
    """Read a gin file with its includes, then overrides of the form `key=value`.

    >>> [(b.key, b.value) for b in read(None, ["train.lr=1e-3", "train.policy_loss=gspo"]).bindings]
    [('train.lr', 0.001), ('train.policy_loss', gspo)]
    """
    reader = _Reader()
    if path is not None:
        reader.read_file(Path(path), (), "config")
    for override in overrides:
        reader.read_override(override)
    return reader.reading


@attrs.define
class _Reader:
    reading: Reading = attrs.field(factory=Reading)
    _seen: set[Path] = attrs.field(factory=set)

    def read_file(self, path: Path, chain: tuple[Path, ...], place: str) -> None:
        """Read one file, which is named at `place`; `chain` holds the files that include it."""
        if len(chain) >= DEPTH:
            self._lose(place, f"includes are nested more than {DEPTH} deep")
            return
        identity = path.resolve()
        if identity in [file.resolve() for file in chain]:
            self.reading.problems.add(place, f"include cycle: {' -> '.join(str(file) for file in (*chain, path))}")
            return
        if identity in self._seen:
            return
        self._seen.add(identity)
        try:
            text = _text_of(path)
        except FileNotFoundError:
            near = closest(path.stem, _neighbours(path))
            broken = next(filter(None, map(current().broken, path.parts[:-1])), "")  # whose configs are not known
            self._lose(place, f"no such file: {path}." + (broken or (f" Did you mean '{near}.gin'?" if near else "")))
        except (OSError, ConfigError) as error:
            self._lose(place, f"{path} cannot be read: {error}")
        else:
            self._read_text(text, path, (*chain, path))

    def _read_text(self, text: str, path: Path, chain: tuple[Path, ...]) -> None:
        owner = ENGINE if text.startswith(RESOLVED) else owner_of(path)
        for statement in self._statements(text, path):
            place = f"{path}:{statement.location.line_num}"
            if isinstance(statement, gin.BindingStatement):
                self.reading.bindings.append(_binding(statement, place, str(path), owner))
            elif isinstance(statement, gin.IncludeStatement):
                if not statement.filename.isprintable():
                    self._lose(place, f"{statement.filename!r} is not the name of a file")
                    continue
                self.read_file(included(statement.filename, path), chain, place)
            elif isinstance(statement, gin.ImportStatement):
                self.reading.problems.add(
                    place,
                    f"'{statement.format()}' is refused: a config is data, it runs no code; installed plugins are found"
                    " without imports",
                )

    def _statements(self, text: str, path: Path) -> Iterator[Any]:
        try:
            parser = Parser(text)
        except PARSE_ERRORS as error:
            self._lose(*_syntax_problem(error, text, path, 1))
            return
        while True:
            try:
                statement = parser.parse_statement()
            except PARSE_ERRORS as error:
                self._lose(*_syntax_problem(error, text, path, parser.began))
                try:
                    parser.skip_statement()
                except PARSE_ERRORS:
                    return
                continue
            if statement is None:
                return
            yield statement

    def read_override(self, override: str) -> None:
        """Read `key=value`; a value that is not valid gin may be a plain word, such as a path."""
        place = f"--set {override}".replace("\n", " ")
        key, equals, value = (part.strip() for part in override.partition("="))
        match = _KEY.fullmatch(key)
        if not match or not equals or not value:
            self._lose(place, "write section.field=value or kind.name.parameter=value")
            return
        try:
            parsed = parse_value(value)
        except PARSE_ERRORS as error:
            if not _UNQUOTED.fullmatch(value):
                self._lose(place, f"{reason(error)}; a text with such characters needs quotes of its own")
                return
            parsed = Word(value, free=True)
        path = tuple(match["path"].split("."))
        self.reading.bindings.append(Binding(scope=match["scope"] or "", path=path, value=parsed, place=place))

    def _lose(self, place: str, text: str) -> None:
        """Record a problem that may have lost bindings."""
        self.reading.problems.add(place, text)
        self.reading.complete = False


def _text_of(path: Path) -> str:
    """Read a UTF-8 text file, with or without a byte-order mark.

    Raises:
        OSError: if it cannot be read.
        ConfigError: if it is not a regular file (reading a device or a pipe may never end), is too large, or is not
            UTF-8.
    """
    if not path.is_file():
        path.stat()
        raise ConfigError("it is not a file" + (" but a folder" if path.is_dir() else ""))
    if path.stat().st_size > LARGEST:
        raise ConfigError(f"it has {path.stat().st_size:,} bytes; a config has at most {LARGEST:,}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"it is not UTF-8 text, at byte {error.start:,}") from None


def _binding(statement: Any, place: str, file: str, owner: str) -> Binding:
    path = tuple(filter(None, (*statement.selector.split("."), statement.arg_name)))
    return Binding(scope=statement.scope, path=path, value=statement.value, place=place, file=file, owner=owner)


def _syntax_problem(error: Exception, text: str, file: Path, began: int) -> tuple[str, str]:
    line = (isinstance(error, SyntaxError) and error.lineno) or began
    lines = text.split("\n")  # not splitlines(): the parser does not count a form feed as the end of a line
    shown = lines[line - 1].strip() if line <= len(lines) else ""
    why = reason(error)
    if line != began:
        why += f" in the statement that begins at line {began}"
    if "parse statement" in why and "-" in shown.partition("=")[0]:
        why += " (in a key, '-' is written '_')"
    return f"{file}:{line}", f"{why}: {shown}"


def _neighbours(path: Path) -> Iterable[str]:
    """Return the names of the gin files next to a path, without `.gin`, which would make all of them similar."""
    return [file.stem for file in path.parent.glob("*.gin")] if path.parent.is_dir() else []

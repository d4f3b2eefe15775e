"""Gin files and `--set` overrides to bindings, each with the place it was written.

gin is used as a grammar: its parser, none of its registries. A config is data, so `import` statements and `@references`
are refused, which run code. Includes are relative to the including file; a file that is included twice is read once.
"""

from __future__ import annotations

import os
import re
import tokenize
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from gin import config_parser as gin

from dovetail.config.problems import Problems
from dovetail.errors import nearest

NUMBER_WORDS = {"inf": float("inf"), "nan": float("nan")}
LITERAL_WORDS = ("True", "False", "None")

_KEY = re.compile(r"((?P<scope>[\w/]+)/)?(?P<path>\w[\w.-]*)")
_UNQUOTED = re.compile(r"[\w./:~+-]+")


@attrs.frozen
class Word:
    """A word that was written without quotes; only what it sets can tell what it means."""

    text: str


@attrs.frozen
class Macro:
    """`%name`, a value that another binding gives."""

    name: str


@attrs.frozen(kw_only=True, eq=False)
class Binding:
    """`scope/path = value`; a path of one part defines a macro, of two a setting, of three a component's parameter."""

    scope: str = ""
    path: tuple[str, ...]
    value: Any
    place: str
    file: str = ""
    """Which file; empty for an override."""

    @property
    def key(self) -> str:
        """What is bound, as it is written."""
        return f"{self.scope}/{'.'.join(self.path)}".lstrip("/")


@attrs.define
class Reading:
    """All bindings in the order in which they apply, and what was wrong with the text.

    `complete` is false where bindings may have been lost, so that what depends on all of them cannot be judged.
    """

    bindings: list[Binding] = attrs.field(factory=list)
    problems: Problems = attrs.field(factory=Problems)
    complete: bool = True


def read(path: Path | None, overrides: Sequence[str] = ()) -> Reading:
    """Read a gin file with its includes, then overrides of the form `key=value`.

    >>> read(None, ["train.lr=1e-3", "train.policy_loss=gspo"]).bindings[1].value
    Word(text='gspo')
    """
    reader = _Reader()
    if path is not None:
        reader.read_file(Path(path), (), "config")
    for override in overrides:
        reader.read_override(override)
    return reader.reading


class _Parser(gin.ConfigParser):
    """gin's parser, which in addition takes unquoted words, `inf`, `nan` and their negatives as values."""

    began = 1
    """The line at which the statement at hand begins."""

    @property
    def token(self) -> tokenize.TokenInfo:
        """The token at hand."""
        return typing.cast(tokenize.TokenInfo, self.current_token)

    def parse_statement(self) -> Any:
        if not self._statements_queue:
            self._skip_whitespace_and_comments()
            self.began = self.token.start[0]
        return super().parse_statement()

    def parse_value(self) -> Any:
        if self.token.string == "-":
            self._advance_one_token()
            return self._negative()
        if self.token.type == tokenize.NAME and self.token.string not in LITERAL_WORDS:
            word = self._word()
            return NUMBER_WORDS.get(word, Word(word))
        return super().parse_value()

    def _negative(self) -> Any:
        if self.token.type == tokenize.NUMBER:
            return -super().parse_value()
        if self.token.string in NUMBER_WORDS:
            return -NUMBER_WORDS[self._word()]
        raise SyntaxError("expected a number after '-'", gin.Location("", *self.token.start, ""))

    def _word(self) -> str:
        """Join adjacent tokens, so that `dr-grpo` and `acme-rl/gspo` are words."""
        word, end = "", self.token.start
        while self.token.start == end and (
            self.token.type in (tokenize.NAME, tokenize.NUMBER) or self.token.string in ("-", "/", ".")
        ):
            word, end = word + self.token.string, self.token.end
            self._advance_one_token()
        self._skip_whitespace_and_comments()
        return word

    def skip_statement(self) -> None:
        """Go to the end of the statement at hand, after an error."""
        while self.token.type not in (tokenize.NEWLINE, tokenize.ENDMARKER):
            self._advance_one_token()
        if self.token.type == tokenize.NEWLINE:
            self._advance_one_token()


class _Refused(SyntaxError):
    """Good gin that a config may not hold."""


class _Delegate(gin.ParserDelegate):
    """Says what gin's `%` and `@` become."""

    def macro(self, macro_name: str) -> Any:
        return Macro(macro_name)

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Any:
        raise _Refused(f"'@{scoped_configurable_name}' is refused: a config is data, it runs no code; write a name")


_PARSE_ERRORS = (SyntaxError, tokenize.TokenError, TypeError, ValueError, StopIteration)
"""What gin's parser and Python's tokenizer raise on malformed text, an unhashable key of a dict among it."""


@attrs.define
class _Reader:
    reading: Reading = attrs.field(factory=Reading)
    _seen: set[Path] = attrs.field(factory=set)

    def read_file(self, path: Path, chain: tuple[Path, ...], place: str) -> None:
        """Read one file, named at `place`; `chain` are the files that include it."""
        identity = path.resolve()
        if identity in [file.resolve() for file in chain]:
            self.reading.problems.add(place, f"include cycle: {' -> '.join(str(file) for file in (*chain, path))}")
            return
        if identity in self._seen:
            return
        self._seen.add(identity)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            self._lose(place, f"no such file: {path}.{nearest(path.name, _neighbours(path))}")
        except (OSError, UnicodeDecodeError) as error:
            self._lose(place, f"{path} cannot be read: {error}")
        else:
            self._read_text(text, path, (*chain, path))

    def _read_text(self, text: str, path: Path, chain: tuple[Path, ...]) -> None:
        for statement in self._statements(text, path):
            place = f"{path}:{statement.location.line_num}"
            if isinstance(statement, gin.BindingStatement):
                self.reading.bindings.append(_binding(statement, place, str(path)))
            elif isinstance(statement, gin.IncludeStatement):
                self.read_file(Path(os.path.normpath(path.parent / statement.filename)), chain, place)
            elif isinstance(statement, gin.ImportStatement):
                self.reading.problems.add(
                    place,
                    f"'{statement.format()}' is refused: a config is data, it runs no code; installed plugins are found"
                    " without imports",
                )

    def _statements(self, text: str, path: Path) -> Iterator[Any]:
        try:
            parser = _Parser(text, _Delegate())
        except _PARSE_ERRORS as error:
            self._lose(*_syntax_problem(error, text, path, 1))
            return
        while True:
            try:
                statement = parser.parse_statement()
            except _PARSE_ERRORS as error:
                self._lose(*_syntax_problem(error, text, path, parser.began))
                try:
                    parser.skip_statement()
                except _PARSE_ERRORS:
                    return
                continue
            if statement is None:
                return
            yield statement

    def read_override(self, override: str) -> None:
        """Read `key=value`; a value that is no gin value may be a plain word, such as a path."""
        place = f"--set {override}".replace("\n", " ")
        key, equals, value = (part.strip() for part in override.partition("="))
        match = _KEY.fullmatch(key)
        if not match or not equals or not value:
            self._lose(place, "write section.field=value or kind.name.parameter=value")
            return
        try:
            parsed = parse_value(value)
        except _PARSE_ERRORS as error:
            if not _UNQUOTED.fullmatch(value):
                self._lose(place, f"{_reason(error)}; a text with such signs needs quotes of its own")
                return
            parsed = Word(value)
        path = tuple(match["path"].split("."))
        self.reading.bindings.append(Binding(scope=match["scope"] or "", path=path, value=parsed, place=place))

    def _lose(self, place: str, text: str) -> None:
        """Note a problem that may have lost bindings."""
        self.reading.problems.add(place, text)
        self.reading.complete = False


def parse_value(text: str) -> Any:
    """Read one gin value.

    >>> parse_value("(-1, 'a', %lr)")
    (-1, 'a', Macro(name='lr'))

    Raises:
        SyntaxError: or what else Python's tokenizer raises, if the text is not exactly one value.
    """
    parser = _Parser(text, _Delegate())
    value = parser.parse_value()
    rest = parser.token
    if rest.type != tokenize.ENDMARKER and (rest.type != tokenize.NEWLINE or rest.string):
        raise SyntaxError(f"unexpected {rest.string!r} after the value")
    return value


def _binding(statement: Any, place: str, file: str) -> Binding:
    parts = (*statement.selector.split("."), statement.arg_name)
    return Binding(
        scope=statement.scope,
        path=tuple(p for p in parts if p),
        value=statement.value,
        place=place,
        file=file,
    )


def _syntax_problem(error: Exception, text: str, file: Path, began: int) -> tuple[str, str]:
    line = (isinstance(error, SyntaxError) and error.lineno) or began
    lines = text.splitlines()
    shown = lines[line - 1].strip() if line <= len(lines) else ""
    reason = _reason(error)
    if line != began:
        reason += f" in the statement that begins at line {began}"
    if "parse statement" in reason and "-" in shown.partition("=")[0]:
        reason += " (in a key, '-' is written '_')"
    return f"{file}:{line}", f"{reason}: {shown}"


def _reason(error: Exception) -> str:
    """gin's message, or the tokenizer's, on one line and in our words."""
    if isinstance(error, tokenize.TokenError):
        return "syntax error, unclosed bracket or quote"
    if isinstance(error, StopIteration):
        return "syntax error, unexpected end"
    message = " ".join(str(error.args[0]).split()).rstrip(".")
    if isinstance(error, _Refused):
        return message
    _, unreadable, token = message.partition("Failed to parse token ")
    message = re.sub(r"\. Got \w+ = (.*)", r", got \1", message)
    return f"syntax error, no value: {token}" if unreadable else f"syntax error, {message[:1].lower()}{message[1:]}"


def _neighbours(path: Path) -> Iterable[str]:
    return [file.name for file in path.parent.glob("*.gin")] if path.parent.is_dir() else []

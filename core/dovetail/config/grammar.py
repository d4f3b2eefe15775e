"""The grammar of gin files: gin's own parser, extended with unquoted words as values, and without code references."""

from __future__ import annotations

import math
import re
import tokenize
import typing
from typing import Any

import attrs
from gin import config_parser as gin

NUMBER_WORDS = {"inf": math.inf, "nan": math.nan}
LITERAL_WORDS = ("True", "False", "None")


@attrs.frozen
class Word:
    """A word written without quotes; `free` if it may stand for any text, as in an override."""

    text: str
    free: bool = False

    def __repr__(self) -> str:
        return self.text


@attrs.frozen
class Macro:
    """`%name`, which stands for the value of another binding."""

    name: str


class _Refused(SyntaxError):
    """Valid gin that is not allowed in a config."""


class _Delegate(gin.ParserDelegate):
    """Handles gin's `%` and `@`."""

    def macro(self, macro_name: str) -> Any:
        """Return `%name` unevaluated; `dovetail.config.macros` expands it."""
        return Macro(macro_name)

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Any:
        """Refuse `@name`."""
        raise _Refused(f"'@{scoped_configurable_name}' is refused: a config is data, it runs no code; write a name")


class Parser(gin.ConfigParser):
    """gin's parser, which also accepts unquoted words, `inf`, `nan` and their negatives as values."""

    began = 1
    """The line at which the current statement begins."""

    def __init__(self, text: str, *, free_words: bool = False) -> None:
        super().__init__(text, _Delegate())
        self.free_words = free_words

    @property
    def token(self) -> tokenize.TokenInfo:
        """The current token."""
        return typing.cast(tokenize.TokenInfo, self.current_token)

    def parse_statement(self) -> Any:
        """Parse the next statement, and set `began`; return None at the end."""
        if not self._statements_queue:
            self._skip_whitespace_and_comments()
            self.began = self.token.start[0]
        return super().parse_statement()

    def parse_value(self) -> Any:
        """Parse a literal, a word, a macro, or a container of these."""
        line = self.token.start[0]
        if self.token.string == "-":
            self._advance_one_token()
            return self._negative()
        if self.token.type == tokenize.NAME and self.token.string not in LITERAL_WORDS:
            word = self._word()
            return NUMBER_WORDS.get(word, Word(word, self.free_words))
        try:
            return super().parse_value()
        except _Refused as refused:
            refused.lineno = refused.lineno or line
            raise

    def _negative(self) -> Any:
        if self.token.type == tokenize.NUMBER:
            return -super().parse_value()
        location = gin.Location("", *self.token.start, "")
        word = self._word()
        if word in NUMBER_WORDS:
            return -NUMBER_WORDS[word]
        raise SyntaxError("expected a number after '-'", location)

    def _word(self) -> str:
        """Join adjacent tokens, so that `dr-grpo` and `acme-rl/gspo` are single words."""
        word, end = "", self.token.start
        while self.token.start == end and (
            self.token.type in (tokenize.NAME, tokenize.NUMBER) or self.token.string in ("-", "/", ".")
        ):
            word, end = word + self.token.string, self.token.end
            self._advance_one_token()
        self._skip_whitespace_and_comments()
        return word

    def skip_statement(self) -> None:
        """Skip to the end of the current statement, after an error."""
        while self.token.type not in (tokenize.NEWLINE, tokenize.ENDMARKER):
            self._advance_one_token()
        if self.token.type == tokenize.NEWLINE:
            self._advance_one_token()


PARSE_ERRORS = (SyntaxError, tokenize.TokenError, TypeError, ValueError, StopIteration, RecursionError, MemoryError)
"""Exceptions of gin's and Python's parsers on malformed text, such as unhashable dict keys or too many brackets."""


def parse_value(text: str) -> Any:
    """Parse one gin value, in which words without quotes may stand for any text.

    >>> parse_value("(-1, 'a', dr-grpo, %lr)")
    (-1, 'a', dr-grpo, Macro(name='lr'))

    Raises:
        SyntaxError: if the text is not exactly one value; some malformed texts raise others of `PARSE_ERRORS`.
    """
    parser = Parser(text, free_words=True)
    value = parser.parse_value()
    rest = parser.token
    if rest.type != tokenize.ENDMARKER and (rest.type != tokenize.NEWLINE or rest.string):
        raise SyntaxError(f"unexpected {rest.string!r} after the value")
    return value


def reason(error: Exception) -> str:
    """Return the message of a parse error on one line, in Dovetail's wording."""
    if isinstance(error, tokenize.TokenError):
        return "syntax error, unclosed bracket or quote"
    if isinstance(error, RecursionError | MemoryError):
        return "syntax error, brackets or signs nested too deeply"
    if isinstance(error, StopIteration):
        return "syntax error, unexpected end"
    message = " ".join(str(error.args[0]).split()).rstrip(".")
    if isinstance(error, _Refused):
        return message
    _, unreadable, token = message.partition("Failed to parse token ")
    message = re.sub(r"\. Got \w+ = (.*)", r", got \1", message)
    return f"syntax error, no value: {token}" if unreadable else f"syntax error, {message[:1].lower()}{message[1:]}"

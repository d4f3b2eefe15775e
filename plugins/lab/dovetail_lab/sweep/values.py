"""Values as they stand on a command line, and back."""

from __future__ import annotations

from typing import Any

from dovetail.config.grammar import PARSE_ERRORS, Macro, Word, parse_value, reason
from dovetail.errors import ConfigError


def read_value(text: str, where: str) -> Any:
    """Return the value that a text means; a word without quotes is a text.

    >>> read_value("1e-6", "--grid"), read_value("gspo", "--grid"), read_value("(ppo, 2)", "--grid")
    (1e-06, 'gspo', ('ppo', 2))

    Raises:
        ConfigError: if it is not a value; the message begins with `where`.
    """
    try:
        return _plain(parse_value(text))
    except PARSE_ERRORS as error:
        raise ConfigError(f"{where}: {reason(error)}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Macro):
        raise SyntaxError(f"a macro, %{value.name}, cannot be varied; name the keys that it sets")
    if isinstance(value, Word):
        return value.text
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value


def split_commas(text: str) -> list[str]:
    """Split at commas outside brackets and quotes.

    >>> split_commas("1, (2, 3), 'a,b'")
    ['1', '(2, 3)', "'a,b'"]
    """
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]

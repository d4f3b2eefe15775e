"""Prompt and demonstration templates: format strings whose placeholders are column names."""

from __future__ import annotations

from collections.abc import Iterable
from string import Formatter

from dovetail.errors import ConfigError, listing, nearest


def check_template(template: str, columns: Iterable[str], setting: str, must: str) -> None:
    """Check that `template.format_map(record)` will work on records with these columns.

    Args:
        template: text with placeholders such as `{question}`.
        columns: the names that placeholders may have.
        setting: the name of the setting that holds the template, for messages.
        must: the required placeholder, without which every text would be the same.

    Raises:
        ConfigError: for an unknown placeholder, one that is more than a name, a lone brace, or a missing `must`.

    >>> check_template("What is {question}?", ["question"], "task.arithmetic.template", must="question")
    >>> check_template("What is {qestion}?", ["question"], "task.arithmetic.template", must="question")
    Traceback (most recent call last):
    dovetail.errors.ConfigError: task.arithmetic.template: unknown placeholder {qestion}. Did you mean 'question'?
        Columns: question
    """
    known = sorted(columns)
    names = _placeholders(template, setting)
    for name in names:
        if name not in known:
            hint = nearest(name, known)
            raise ConfigError(f"{setting}: unknown placeholder {{{name}}}.{hint} Columns: {listing(known)}")
    if must not in names:
        raise ConfigError(f"{setting}: {template!r} lacks the placeholder {{{must}}}; every text would be the same")


def _placeholders(template: str, setting: str) -> list[str]:
    try:
        fields = [field for field in Formatter().parse(template) if field[1] is not None]
    except ValueError as error:
        raise ConfigError(f"{setting}: {template!r}: {error}; write {{{{ or }}}} for a brace") from error
    for _, name, spec, conversion in fields:
        if not name or spec or conversion or not set(name).isdisjoint(".["):
            shown = f"{name}{'!' + conversion if conversion else ''}{':' + spec if spec else ''}"
            raise ConfigError(
                f"{setting}: placeholder {{{shown}}} is more than the name of a column; write {{{{ or }}}} for a brace"
            )
    return [name for _, name, _, _ in fields if name]

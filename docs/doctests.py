"""What the site does with docstrings: their doctests become blocks of code, as a reader of Markdown expects."""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"(?:^|(?<=\n\n))(>>> (?:.|\n(?!\n))*)")


class Doctests(Extension):
    """Wraps each doctest in a fence."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of everything that has one."""
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\1\n```", obj.docstring.value)

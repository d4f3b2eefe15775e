"""Find the text between tags in a completion, in time linear in its length."""

from __future__ import annotations

import functools
import re

REASONING_START = "<reasoning>"
REASONING_END = "</reasoning>"
ANSWER_START = "<answer>"
ANSWER_END = "</answer>"


def answer_in_format(
    text: str, *, reasoning_start: str, reasoning_end: str, answer_start: str, answer_end: str
) -> str | None:
    """Return the answer, as written, of a text with reasoning and then an answer, each in its tags; otherwise None.

    Apart from white space, the first tag must be the first thing on its line and the last tag the last thing on its
    line. Both parts must have at least one character. There may be any text between them, and on lines before and
    after.

    The leftmost match is used for each tag in turn, since a later one would only leave less room for the following
    tags. There is no backtracking; a single regular expression for the whole takes minutes on a text full of tags.

    >>> tags = {"reasoning_start": "<r>", "reasoning_end": "</r>", "answer_start": "<a>", "answer_end": "</a>"}
    >>> answer_in_format("<r>6·7</r> so <a> 42</a>", **tags)
    ' 42'
    >>> answer_in_format("<a>42</a>", **tags)
    """
    opening = _first_on_its_line(reasoning_start).search(text)
    reasoned = text.find(reasoning_end, opening.end() + 1) if opening else -1
    answered = text.find(answer_start, reasoned + len(reasoning_end)) if reasoned >= 0 else -1
    if answered < 0:
        return None
    begin = answered + len(answer_start)
    closing = _last_on_its_line(answer_end).search(text, begin + 1)
    return text[begin : closing.start()] if closing else None


@functools.cache
def _first_on_its_line(tag: str) -> re.Pattern[str]:
    return re.compile(rf"^[^\S\n]*{re.escape(tag)}", re.MULTILINE)


@functools.cache
def _last_on_its_line(tag: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(tag)}[^\S\n]*$", re.MULTILINE)


def first_answer(text: str, *, answer_start: str, answer_end: str) -> str | None:
    """Return the text after the first opening tag, up to the closing tag or, without one, the end of the text.

    >>> first_answer("<answer>42", answer_start="<answer>", answer_end="</answer>")
    '42'
    """
    _, opened, rest = text.partition(answer_start)
    return rest.partition(answer_end)[0] if opened else None


def last_answer(text: str, *, answer_start: str, answer_end: str) -> str | None:
    """Return the text between the last closing tag and the opening tag before it; None without such a pair.

    >>> last_answer("in <answer>: <answer>4</answer>", answer_start="<answer>", answer_end="</answer>")
    '4'
    """
    before, closed, _ = text.rpartition(answer_end)
    _, opened, content = before.rpartition(answer_start)
    return content if closed and opened else None

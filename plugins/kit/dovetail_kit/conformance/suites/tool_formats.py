"""Claims about formats of calls of tools."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from typing import Any, Final

from dovetail.protocols import Call, Parsed
from dovetail.ranges import plain
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.episodes import TEXTS

CALLS: Final = (
    Call("search", {"query": 'two "quoted" words\nin lines, é', "limit": 3}),
    Call("now", {}),
    Call("set_up", {"on": True, "share": 0.25, "note": None}),
    Call("draw", {"points": [1, 2, 3], "style": {"color": "red", "dash": {"on": [2, 1]}}, "last": [{"x": 1}]}),
)
MARK: Final = "dovetail_has_run_it"


@check(
    "tool_format",
    fix="Escape in `write` what `parse` would take for the end of a value, and keep the order; write what is not a text"
    " as JSON: true, null, [1, 2].",
)
def reads_what_it_writes(subject: Subject) -> None:
    """A call that is written and parsed again is the same call: its name, its arguments and their values.

    It writes the calls in demonstrations, which would otherwise teach calls with a different meaning. Where a format
    gives all values as texts, those that are not texts are read as JSON.
    """
    format_ = subject.bind()
    for call in CALLS:
        found = format_.parse(format_.write(call))
        if found.error is not None or len(found.calls) != 1:
            raise Failed(f"{call} is written as {format_.write(call)!r} and read as {found}")
        (read,) = found.calls
        values = {name: _meant(value, call.arguments.get(name), read.texts) for name, value in read.arguments.items()}
        if read.name != call.name or values != call.arguments:
            raise Failed(f"{call} is written as {format_.write(call)!r} and read as {read}")


def _meant(value: Any, wanted: Any, texts: bool) -> Any:
    """Return a value as it is read, from JSON where a format gives texts and something else was written."""
    if not texts or isinstance(wanted, str):
        return value
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        raise Failed(f"wrote {wanted!r} as {value!r}; a value that is not a text is written as JSON") from None


@check("tool_format", fix="Return Parsed(error=...) for what cannot be read; the policy reads it.")
def reads_anything(subject: Subject) -> None:
    """Any text is parsed without raising: as calls, or as an error, but never as both.

    A policy writes incomplete calls and all kinds of nonsense; none of these may end a run.
    """
    format_ = subject.bind()
    for text in (*TEXTS, *_broken(format_)):
        try:
            found = format_.parse(text)
        except Exception as error:
            raise Failed(f"{text[:80]!r} raises {type(error).__name__}: {error}") from error
        if not isinstance(found, Parsed) or (found.calls and found.error is not None):
            raise Failed(f"{text[:80]!r} is read as {found!r}")


@check("tool_format", fix="Find all of the calls; return Parsed(error=...) where only one is allowed.")
def reads_all_calls(subject: Subject) -> None:
    """Two calls in a turn are read as two, in the order written, or as an error, and never as one of them.

    A call that is dropped without a word looks to the policy like a tool that does not answer.
    """
    format_ = subject.bind()
    for first, second in ((CALLS[0], CALLS[2]), (CALLS[2], CALLS[1])):
        text = f"{format_.write(first)}\n{format_.write(second)}"
        found = format_.parse(text)
        names = [call.name for call in found.calls]
        if found.error is None and len(names) == 1:
            raise Failed(f"{text[:200]!r} is read as a single call, of {names[0]}")
        if len(names) == 2 and names != [first.name, second.name]:
            raise Failed(f"{text[:200]!r} is read as calls of {names[0]} and {names[1]}, in this order")


@check("tool_format", fix="Return Parsed(error=...) where a call begins that cannot be read; do not pass over it.")
def tells_of_a_broken_call(subject: Subject) -> None:
    """Of the ways to cut a written call short, one at least is read as an error.

    A call that is passed over ends the turn: the policy is not told what was wrong, and waits for no answer.
    """
    format_ = subject.bind()
    whole = format_.write(CALLS[0])
    if all(format_.parse(whole[:end]).error is None for end in range(1, len(whole))):
        raise Failed(f"no beginning of {whole!r} is read as an error")


@check("tool_format", fix="Read values with json.loads or ast.literal_eval, which run nothing; never with eval.")
def runs_nothing(subject: Subject) -> None:
    """A call whose arguments are code is read, not run.

    What the policy writes is not trusted: it may read the answers, or end the process.
    """
    format_ = subject.bind()
    text = format_.write(Call("add", {"a": "VALUE"}))
    code = f"__import__('builtins').__dict__.setdefault('{MARK}', 1)"
    for written in (text.replace('"VALUE"', code), text.replace("'VALUE'", code), text.replace("VALUE", code)):
        format_.parse(written)
        if hasattr(builtins, MARK):
            delattr(builtins, MARK)
            raise Failed(f"parsing {written!r} runs the code in it")


@check("tool_format", fix="Use the hyperparameter in `write` and in `parse`, or take it out.")
def every_text_counts(subject: Subject) -> None:
    """Another text as a hyperparameter changes how a call is written.

    A marker that is written into the code looks like a setting, and none of its values changes anything.
    """
    for name, value in subject.params.items():
        if isinstance(value, str) and plain(subject.component.hints[name]) is str:
            written = [subject.bind(**{name: text}).write(CALLS[0]) for text in (value, f"{value}_or")]
            if written[0] == written[1]:
                raise Failed(f"'{name}' = {value!r} can be changed to '{value}_or' unseen")


def _broken(format_: Any) -> Iterator[str]:
    """Yield written calls that are cut at every place, doubled, nested, or continued with brackets."""
    for call in CALLS:
        whole = format_.write(call)
        yield from (whole[:end] for end in range(len(whole)))
        yield from (whole[start:] for start in range(1, len(whole), 7))
        yield from (whole * 3, whole.replace("search", whole), whole.replace("3", "[" * 5000))

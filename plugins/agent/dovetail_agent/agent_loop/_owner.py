"""Whose an interaction or tool format is: the loop has the instance alone, and its author needs its name and line."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from dovetail.errors import DovetailError, PluginError
from dovetail.protocols import Call, Example, Interaction, Message, Parsed, Step, ToolFormat
from dovetail.registry import place_of
from dovetail.registry.places import raised_in
from dovetail_agent.runner import said, whose

KINDS: Final = ("interaction", "tool_format")
_MESSAGES: Final = "a sequence of messages, ({'role': 'user', 'content': TEXT},)"
_UNKNOWN: Final = ("the interaction", "the tool format")


def owner(instance: Interaction | ToolFormat) -> str:
    """Return `KIND.NAME of DISTRIBUTION VERSION (MODULE)`, or what it is if it is not registered."""
    return whose(KINDS, instance, _UNKNOWN[hasattr(instance, "parse")])


def raised(instance: Interaction | ToolFormat, error: BaseException) -> str:
    """Return in a line what an interaction or tool format raised, and where."""
    where = raised_in(type(instance), error) or place_of(type(instance))
    return f"{owner(instance)} raised {type(error).__name__}: {said(error)}{where}"


def wrong(
    instance: Interaction | ToolFormat, method: str, returned: object, wanted: str, within: str = ""
) -> PluginError:
    """Return the error that says what a method returned, `within` what, in place of what it should."""
    there = inspect.getattr_static(type(instance), method, None)
    place = place_of(there) if inspect.isfunction(there) else place_of(type(instance))
    return PluginError(f"{owner(instance)} returned {within}{returned!r:.80} from `{method}`; return {wanted}{place}")


@contextmanager
def _named(instance: Interaction | ToolFormat) -> Iterator[None]:
    try:
        yield
    except DovetailError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(raised(instance, error)) from error


def begun(interaction: Interaction, example: Example, rng: object) -> tuple[object, tuple[Message, ...]]:
    """Begin an episode.

    Raises:
        PluginError: if the interaction raises, or returns anything but a state and messages.
    """
    with _named(interaction):
        answer = interaction.reset(example, rng)  # pyright: ignore[reportArgumentType]
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise wrong(interaction, "reset", answer, "(state, messages)")
    if not _are_messages(answer[1]):
        raise wrong(interaction, "reset", answer[1], _MESSAGES, "a state and, as messages, ")
    return answer[0], tuple(answer[1])


def anchor_of(interaction: Interaction | None, state: object) -> Hashable | None:
    """Return the anchor of a state; None where there is no interaction, or it gives none.

    Raises:
        PluginError: if the interaction raises, or returns what cannot be a key.
    """
    anchor = getattr(interaction, "anchor", None)
    if interaction is None or anchor is None:
        return None
    with _named(interaction):
        found = anchor(state)
    try:
        hash(found)
    except TypeError:
        raise wrong(interaction, "anchor", found, "a value that can be a key, such as a tuple") from None
    return found


def see_that_right(interaction: Interaction, step: object) -> None:
    """Refuse what the interaction has returned from `step` if it is anything but a `Step` of the declared fields.

    Raises:
        PluginError: with the field.
    """
    if not isinstance(step, Step):
        raise wrong(interaction, "step", step, "a dovetail.protocols.Step")
    if not _are_messages(step.messages):
        raise wrong(interaction, "step", step.messages, _MESSAGES, "a Step with messages = ")
    if not _is_number(step.reward):
        raise wrong(interaction, "step", step.reward, "a number", "a Step with reward = ")
    if not (isinstance(step.metrics, Mapping) and all(map(_is_number, step.metrics.values()))):
        raise wrong(interaction, "step", step.metrics, "numbers by name", "a Step with metrics = ")


def _are_messages(value: object) -> bool:
    """Whether a value is a sequence of messages; a message alone is none.

    >>> said = {"role": "user", "content": "higher"}
    >>> _are_messages((said,)), _are_messages(()), _are_messages(said), _are_messages("higher"), _are_messages([{}])
    (True, True, False, False, False)
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    return all(isinstance(each, Mapping) and {"role", "content"} <= each.keys() for each in value)


def _is_number(value: Any) -> bool:
    """Whether a value is a number, of numpy or JAX too."""
    try:
        return not isinstance(value, str | bytes) and isinstance(float(value), float)
    except (TypeError, ValueError):
        return False


def calls_in(tool_format: ToolFormat, text: str) -> Parsed:
    """Find the calls in a turn's text.

    Raises:
        PluginError: if the format raises, which it never may, or returns anything but a `Parsed` of calls.
    """
    with _named(tool_format):
        answer = tool_format.parse(text)
    if not (isinstance(answer, Parsed) and all(isinstance(call, Call) for call in answer.calls)):
        raise wrong(tool_format, "parse", answer, "a dovetail.protocols.Parsed, of calls or of an error")
    return answer

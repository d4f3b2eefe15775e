"""Whose an interaction is: the loop has the instance alone, and its author needs its name and line."""

from __future__ import annotations

import inspect
import sys

from dovetail.errors import DovetailError, PluginError
from dovetail.protocols import Example, Interaction, Message
from dovetail.registry import current, place_of
from dovetail.registry.places import raised_in
from dovetail_agent.runner import said


def owner(interaction: Interaction) -> str:
    """Return `interaction.NAME of DISTRIBUTION VERSION (MODULE)`; `the interaction` if it is not registered."""
    known = [each for each in current().components("interaction") if each.origin.module in sys.modules]
    found = next((each for each in known if each.load() is type(interaction)), None)
    return f"{found.label} of {found.origin}" if found else "the interaction"


def raised(interaction: Interaction, error: BaseException) -> str:
    """Return in a line what an interaction raised, and where."""
    return f"{owner(interaction)} raised {type(error).__name__}: {said(error)}{raised_in(type(interaction), error)}"


def wrong(interaction: Interaction, method: str, returned: object, wanted: str) -> PluginError:
    """Return the error that says what a method of an interaction returned in place of what it should."""
    there = inspect.getattr_static(type(interaction), method, None)
    place = place_of(there) if inspect.isfunction(there) else place_of(type(interaction))
    return PluginError(f"{owner(interaction)} returned {returned!r:.80} from `{method}`; return {wanted}{place}")


def begun(interaction: Interaction, example: Example, rng: object) -> tuple[object, tuple[Message, ...]]:
    """Begin an episode.

    Raises:
        PluginError: if the interaction raises, or returns anything but a state and messages.
    """
    try:
        answer = interaction.reset(example, rng)  # pyright: ignore[reportArgumentType]
    except DovetailError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(raised(interaction, error)) from error
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise wrong(interaction, "reset", answer, "(state, messages)")
    return answer[0], tuple(answer[1])

"""The division of a batch into calls, for hosts that complete several requests in one compiled call.

It depends on the batch alone: not on how many replicas there are, nor on which are free. So all calls have one shape,
and a completion is rounded in the same way whichever replica draws it, because it always has the same neighbours.
"""

from __future__ import annotations

import math

import attrs


@attrs.frozen
class Form:
    """The shape of a batch: completions of each of so many prompts, padded to so many positions."""

    prompts: int
    samples: int
    positions: int


@attrs.frozen
class Place:
    """The place of a request in its batch: its prompt, and which of the prompt's completions it is."""

    prompt: int
    sample: int
    batch: Form


def form_of_call(batch: Form, at_once: int) -> Form:
    """Return the shape of a call with about `at_once` completions: of whole groups, or of an equal part of one.

    >>> form_of_call(Form(prompts=10, samples=8, positions=64), at_once=20)
    Form(prompts=2, samples=8, positions=64)
    >>> form_of_call(Form(prompts=10, samples=8, positions=64), at_once=7)
    Form(prompts=1, samples=4, positions=64)
    """
    if batch.samples <= at_once:
        return attrs.evolve(batch, prompts=min(batch.prompts, at_once // batch.samples))
    parts = math.ceil(batch.samples / at_once)
    return attrs.evolve(batch, prompts=1, samples=math.ceil(batch.samples / parts))


def call_of(place: Place, at_once: int) -> tuple[int, int]:
    """Return which call a request belongs to.

    >>> batch = Form(prompts=4, samples=3, positions=64)
    >>> [call_of(Place(prompt, 0, batch), at_once=6) for prompt in range(4)]
    [(0, 0), (0, 0), (1, 0), (1, 0)]
    >>> [call_of(Place(1, sample, batch), at_once=2) for sample in range(3)]
    [(1, 0), (1, 0), (1, 1)]
    """
    call = form_of_call(place.batch, at_once)
    return place.prompt // call.prompts, place.sample // call.samples


def share_of(batch: Form, parts: int) -> int:
    """Return how many completions a call has that is one of about so many `parts` of a batch.

    >>> share_of(Form(prompts=10, samples=8, positions=64), parts=4)
    20
    """
    return math.ceil(batch.prompts * batch.samples / parts)

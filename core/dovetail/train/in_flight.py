"""What is between the two programs at a moment, as a checkpoint holds it: arrays, and values of JSON.

A checkpoint has the batches that were drawn and not yet learnt from, and the older weights with which the next ones are
to be drawn. So nothing is drawn twice, no reward is asked again, and a run goes on as if it had not stopped, wherever
the sampler's program was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from dovetail.errors import RunError
from dovetail.evaluation.evaluate import Evaluation
from dovetail.train.drawing import Batch, Cursor, Message

Arrays = dict[str, np.ndarray]


@attrs.frozen(kw_only=True)
class Cut:
    """What a checkpoint holds of the sampler's program and of the channels.

    Attributes:
        taken: how many messages the trainer has taken.
        cursor: where the batch after the last of `messages` goes on.
        messages: made, and not yet taken.
        weights: what is trained, by version, of older weights that are still to be sampled with.
    """

    taken: int = 0
    cursor: Cursor = attrs.field(factory=Cursor)
    messages: tuple[Message, ...] = ()
    weights: Mapping[int, Any] = attrs.field(factory=dict)

    @property
    def arrays(self) -> dict[str, Any]:
        """Its arrays, beside what a curriculum remembers."""
        return {
            "messages": {str(number): arrays_of(message) for number, message in enumerate(self.messages)},
            "weights": {str(version): weights for version, weights in self.weights.items()},
        }

    @property
    def data(self) -> dict[str, Any]:
        """The rest, as values of JSON."""
        return {
            "taken": self.taken,
            "prompts": self.cursor.prompts,
            "messages": [values_of(message) for message in self.messages],
            "weights": list(self.weights),
        }


def like(data: Mapping[str, Any], params: Any) -> dict[str, Any]:
    """Return arrays of the shapes of those that belong to a cut's values, `params` being the policy's.

    Raises:
        RunError: if the values are not those of a cut.
    """
    if missing := [name for name in Cut().data if name not in data]:
        raise RunError(
            f"the newest checkpoint cannot be resumed: it lacks {', '.join(missing)}, as those of older versions of"
            " Dovetail do. `dovetail eval` and `dovetail export` can still read it; to train on, resume it with the"
            " version that wrote it"
        )
    return {
        "messages": {str(number): empty_like(values) for number, values in enumerate(data["messages"])},
        "weights": {str(version): params for version in data["weights"]},
    }


def restored(data: Mapping[str, Any], arrays: Mapping[str, Any], memory: dict[str, Any]) -> Cut:
    """Return the cut of these values and arrays, and of what a curriculum remembers."""
    return Cut(
        taken=data["taken"],
        cursor=Cursor(prompts=data["prompts"], memory=memory),
        messages=tuple(
            message_of(values, arrays["messages"][str(number)]) for number, values in enumerate(data["messages"])
        ),
        weights={version: arrays["weights"][str(version)] for version in data["weights"]},
    )


def arrays_of(message: Message) -> Arrays:
    """Return the arrays of a message."""
    return dict(message.fields if isinstance(message, Batch) else message.columns)


def values_of(message: Message) -> dict[str, Any]:
    """Return the rest of a message; the types and shapes of its arrays too, so that they can be read."""
    shapes = {name: [str(array.dtype), *array.shape] for name, array in arrays_of(message).items()}
    if not isinstance(message, Batch):
        return {"arrays": shapes, "records": message.records}
    values = {"metrics": message.metrics, "filtered": message.filtered, "tokens": message.tokens}
    return {"arrays": shapes, **values}


def bytes_of(message: Message) -> bytes:
    """Return the arrays of a message one after another, as its values say."""
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays_of(message).values())


def arrays_from(values: Mapping[str, Any], body: bytes) -> Arrays:
    """Return the arrays of a message from their bytes."""
    found, start = {}, 0
    for name, array in empty_like(values).items():
        found[name] = np.frombuffer(body, array.dtype, array.size, start).reshape(array.shape)
        start += array.nbytes
    return found


def empty_like(values: Mapping[str, Any]) -> Arrays:
    """Return arrays of the types and shapes of a message's."""
    return {name: np.zeros(shape, dtype) for name, (dtype, *shape) in values["arrays"].items()}


def message_of(values: Mapping[str, Any], arrays: Mapping[str, Any]) -> Message:
    """Return the message of these values and arrays."""
    found = {name: np.asarray(arrays[name]) for name in values["arrays"]}
    if "records" in values:
        return Evaluation(columns=found, records=values["records"])
    given: dict[str, Any] = {name: values[name] for name in ("metrics", "filtered", "tokens")}
    return Batch(fields=found, **given)

"""The state of the channels between the two programs in a checkpoint: arrays, and JSON values.

A checkpoint has the batches that were sampled but not yet learned from, and the older weights with which the next ones
must be sampled. So nothing is sampled twice, no reward is called again, and a run resumes as if it had not stopped,
whatever the sampler's program was doing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from dovetail.errors import RunError
from dovetail.host.stored import Stored
from dovetail.training.drawing import Batch, Cursor, Message
from dovetail.training.evaluation import Evaluation
from dovetail.training.order import Task

Arrays = dict[str, np.ndarray]


@attrs.frozen(kw_only=True)
class Cut:
    """The part of a checkpoint that belongs to the sampler's program and the channels.

    Attributes:
        taken: number of messages that the trainer has taken.
        cursor: the position from which the batch after the last of `messages` continues.
        messages: messages that have been produced but not yet taken.
        weights: by version, the trained parameters of older weights that are still needed for sampling.
    """

    taken: int = 0
    cursor: Cursor = attrs.field(factory=Cursor)
    messages: tuple[Message, ...] = ()
    weights: Mapping[int, Any] = attrs.field(factory=dict)

    @property
    def arrays(self) -> dict[str, Any]:
        """Its arrays, except the curriculum's state."""
        over = {} if self.cursor.over is None else {"over": self.cursor.over.body}
        return over | {
            "messages": {str(number): arrays_of(message) for number, message in enumerate(self.messages)},
            "weights": {str(version): weights for version, weights in self.weights.items()},
        }

    @property
    def data(self) -> dict[str, Any]:
        """Everything else, as JSON values."""
        stored = self.cursor.over
        over = {} if stored is None else {"over": {"values": stored.values, "bytes": stored.body.size}}
        return over | {
            "taken": self.taken,
            "prompts": self.cursor.prompts,
            "messages": [values_of(message) for message in self.messages],
            "weights": list(self.weights),
        }


def like(data: Mapping[str, Any], params: Any) -> dict[str, Any]:
    """Return arrays with the shapes of those of a cut, given its JSON values and the policy's `params`.

    Raises:
        RunError: if the values do not describe a cut.
    """
    if missing := [name for name in Cut().data if name not in data]:
        raise RunError(
            f"the newest checkpoint cannot be resumed: it lacks {', '.join(missing)}, as those of older versions of"
            " Dovetail do. `dovetail eval` and `dovetail export` can still read it; to train on, resume it with the"
            " version that wrote it"
        )
    over = {"over": np.zeros(data["over"]["bytes"], np.uint8)} if "over" in data else {}
    return over | {
        "messages": {str(number): empty_like(values) for number, values in enumerate(data["messages"])},
        "weights": {str(version): params for version in data["weights"]},
    }


def restored(data: Mapping[str, Any], arrays: Mapping[str, Any], curriculum: dict[str, Any]) -> Cut:
    """Return the cut with these JSON values and arrays, and the curriculum's state."""
    over = Stored(values=data["over"]["values"], body=np.asarray(arrays["over"])) if "over" in data else None
    return Cut(
        taken=data["taken"],
        cursor=Cursor(prompts=data["prompts"], curriculum=curriculum, over=over),
        messages=tuple(
            message_of(values, arrays["messages"][str(number)]) for number, values in enumerate(data["messages"])
        ),
        weights={version: arrays["weights"][str(version)] for version in data["weights"]},
    )


def arrays_of(message: Message) -> Arrays:
    """Return the arrays of a message."""
    return dict(message.fields if isinstance(message, Batch) else message.columns)


def values_of(message: Message) -> dict[str, Any]:
    """Return the JSON values of a message, including the types and shapes of its arrays."""
    shapes = {name: [str(array.dtype), *array.shape] for name, array in arrays_of(message).items()}
    if not isinstance(message, Batch):
        return {"arrays": shapes, "records": message.records}
    values = {"metrics": message.metrics, "filtered": message.filtered, "tokens": message.tokens}
    return {"arrays": shapes, **values}


def head(task: Task, message: Message) -> dict[str, Any]:
    """Return the JSON values of a message with its task, which precede its bytes in a file."""
    return {"version": task.version, "batch": task.batch, **values_of(message)}


def bytes_of(message: Message) -> bytes:
    """Return the concatenated bytes of a message's arrays, in the order of its values."""
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays_of(message).values())


def empty_like(values: Mapping[str, Any]) -> Arrays:
    """Return arrays with the types and shapes of a message's arrays."""
    return {name: np.zeros(shape, dtype) for name, (dtype, *shape) in values["arrays"].items()}


def message_of(values: Mapping[str, Any], arrays: Mapping[str, Any]) -> Message:
    """Return the message with these values and arrays."""
    found = {name: np.asarray(arrays[name]) for name in values["arrays"]}
    if "records" in values:
        return Evaluation(columns=found, records=values["records"])
    given: dict[str, Any] = {name: values[name] for name in ("metrics", "filtered", "tokens")}
    return Batch(fields=found, **given)

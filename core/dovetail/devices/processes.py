"""Communication from process 0 of a run to the others: only process 0 samples, scores and writes, and all train.

With one process the functions here just call their arguments. With several, all processes must call the same functions
in the same order. Small values go through the coordinator of `jax.distributed`, large ones through the devices. The
others wait for process 0 without a time limit, and end if it ends (`dovetail_executor.hosts.join`).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import jax
import numpy as np

T = TypeVar("T")

SMALL: Final = 1 << 16
"""The greatest size in bytes of values that go through the coordinator."""
KEPT: Final = 100
"""The number of values that the coordinator keeps; no process falls this far behind, because steps wait for all."""
LOOK_MILLISECONDS: Final = 1000
"""The time limit of one call to the coordinator; between two calls Python can handle an interrupt."""

_NUMBERS = itertools.count()


def several() -> bool:
    """Return whether the run has more than one process."""
    return jax.process_count() > 1


def is_first() -> bool:
    """Return whether this is process 0, which owns the folder, sinks, engine and rewards."""
    return jax.process_index() == 0


def say(*lines: str, file: Any = None) -> None:
    """Print lines only in process 0."""
    if is_first():
        print(*lines, sep="\n", file=file or sys.stdout)


def told(make: Callable[[], T]) -> T:
    """Return a JSON value that process 0 computes; `make` is called only there."""
    if not several():
        return make()
    value = make() if is_first() else None
    said = told_bytes(json.dumps(value).encode() if is_first() else b"")
    return value if is_first() else json.loads(said)  # pyright: ignore[reportReturnType]


def told_arrays(make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return host arrays that process 0 computes; `make` is called only there."""
    if not several():
        return make()
    mine = make() if is_first() else {}
    form = told(lambda: [[name, str(array.dtype), array.shape] for name, array in mine.items()])
    said = told_bytes(b"".join(np.ascontiguousarray(array).tobytes() for array in mine.values()))
    found, start = {}, 0
    for name, dtype, shape in form:
        array = np.frombuffer(said, dtype, math.prod(shape), start)
        found[name], start = array.reshape(shape), start + array.nbytes
    return found


def after_first(make: Callable[[], T]) -> T:
    """Call a function in process 0, and afterwards in the others, which can read the files that it has written."""
    made = make() if is_first() else None
    told(lambda: None)
    return made if is_first() else make()  # pyright: ignore[reportReturnType]


def told_bytes(mine: bytes) -> bytes:
    """Return the bytes that process 0 passes to this function."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    number, head = next(_NUMBERS), b""
    key = f"dovetail/told/{number}"
    if is_first():
        head = len(mine).to_bytes(8, "little")
        client().key_value_set_bytes(key, head + (mine if len(mine) <= SMALL else b""))
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            client().key_value_delete(f"dovetail/told/{number - KEPT}")
        said = mine
    else:
        said = wait_for(key)
        head, said = said[:8], said[8:]
    size = int.from_bytes(head, "little")
    if size <= SMALL:
        return said
    room = np.zeros(1 << (size - 1).bit_length(), np.uint8)  # few sizes, each of which is compiled
    if is_first():
        room[:size] = np.frombuffer(mine, np.uint8)
    return np.asarray(broadcast_one_to_all(room))[:size].tobytes()


def wait_for(key: str) -> bytes:
    """Wait until a process has stored a value under this key at the coordinator, and return the value.

    Raises:
        jax.errors.JaxRuntimeError: if the coordinator has ended.
    """
    while True:
        try:
            return client().blocking_key_value_get_bytes(key, LOOK_MILLISECONDS)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise


def client() -> Any:
    """Return this process's connection to the coordinator; JAX has no public name for it, and orbax uses it, too."""
    from jax._src import distributed

    return distributed.global_state.client

"""What process 0 of a run tells the others: it alone draws, scores and writes, and all of them train.

With one process every function here is what it wraps. With several, all processes call the same ones in the same
order; the values go through the coordinator of `jax.distributed` where they are small, and through the devices
otherwise. Process 0 may take its time: those that wait look at no clock, and end with it (`dovetail.run.join`).
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
"""Bytes up to which the coordinator passes a value on itself."""
KEPT: Final = 100
"""Values that the coordinator keeps; every step waits for all processes, so that nobody is so far behind."""
LOOK_MILLISECONDS: Final = 1000
"""How long one call to the coordinator waits; between two of them Python sees an interruption."""

_NUMBERS = itertools.count()


def several() -> bool:
    """Whether the run has more than one process."""
    return jax.process_count() > 1


def is_first() -> bool:
    """Whether this is the process that owns folder, sinks, engine and rewards."""
    return jax.process_index() == 0


def say(*lines: str, file: Any = None) -> None:
    """Print lines, once for the run."""
    if is_first():
        print(*lines, sep="\n", file=file or sys.stdout)


def told(make: Callable[[], T]) -> T:
    """Return a value of JSON that process 0 makes; `make` is called there alone."""
    if not several():
        return make()
    value = make() if is_first() else None
    said = told_bytes(json.dumps(value).encode() if is_first() else b"")
    return value if is_first() else json.loads(said)  # pyright: ignore[reportReturnType]


def told_arrays(make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return arrays of the host that process 0 makes; `make` is called there alone."""
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
    """Call a function in process 0, and then in the others, which find what it has written."""
    if not several():
        return make()
    if not is_first():
        told(lambda: None)
        return make()
    made = make()
    told(lambda: None)
    return made


def told_bytes(mine: bytes) -> bytes:
    """Return the bytes that process 0 calls this with."""
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
    """Return what a process has given to the coordinator under a name, once it has.

    Raises:
        jax.errors.JaxRuntimeError: if the coordinator is gone.
    """
    while True:
        try:
            return client().blocking_key_value_get_bytes(key, LOOK_MILLISECONDS)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise


def client() -> Any:
    """Return this process's connection to the coordinator; JAX has no public name for it, and orbax takes it too."""
    from jax._src import distributed

    return distributed.global_state.client

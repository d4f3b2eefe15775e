"""Claims about fields that are computed position by position in a forward pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import is_quantity
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import finite, same
from dovetail_kit.conformance.subject import Subject


def _arguments(subject: Subject) -> list[Any]:
    known = batch.known_fields()
    return [jnp.asarray(batch.field(name, known)) for name in subject.component.reads]


def _values(subject: Subject) -> np.ndarray:
    return subject.once("values", lambda: np.asarray(subject.bind()(*_arguments(subject))))


@check("field", when=is_quantity, fix="Return one number for each position: reduce the last axis, whatever its size.")
def one_for_each_position(subject: Subject) -> None:
    """It returns one number for each position: the engine refuses vectors, which would take too much memory."""
    positions = (batch.ROWS, batch.TOKENS)
    if _values(subject).shape != positions:
        raise Failed(f"for positions {list(positions)} it returns {list(_values(subject).shape)}")


@check("field", when=is_quantity, fix="Reduce over the last axis only, whatever axes come before it.")
def by_position(subject: Subject) -> None:
    """Computed in chunks of positions, it gives the same results as all at once.

    The engine never holds the logits of all positions, and the shapes of its chunks differ from [seq, token].
    """
    whole = _values(subject)
    chunk = subject.bind()(*(value.reshape(-1, *value.shape[2:])[5:12] for value in _arguments(subject)))
    same(chunk, whole.reshape(-1, *whole.shape[2:])[5:12], "for a chunk of 7 positions: the value")


@check("field", when=is_quantity, fix="Use jnp, and no Python that looks at numbers.")
def quantity_jit(subject: Subject) -> None:
    """It can be compiled, and then gives the same values, in float32."""

    @jax.jit
    def jitted(*arguments: Any) -> Any:
        return subject.bind()(*arguments)

    try:
        compiled = jitted(*_arguments(subject))
    except jax.errors.JAXTypeError as error:
        raise Failed(f"it cannot be traced: {str(error).strip().splitlines()[0]}") from None
    same(compiled, _values(subject), "compiled against eager: the value")
    if compiled.dtype.name in ("bfloat16", "float16"):
        raise Failed(f"the value has type {compiled.dtype}")


@check("field", when=is_quantity, fix="Go through jax.nn.log_softmax or logsumexp; never take the log of a softmax.")
def quantity_extremes(subject: Subject) -> None:
    """Logits of ±10⁴, as from a model that is certain, give finite values and gradients."""
    arguments = [value * 1e4 if jnp.issubdtype(value.dtype, jnp.floating) else value for value in _arguments(subject)]
    floats = tuple(i for i, value in enumerate(arguments) if jnp.issubdtype(value.dtype, jnp.floating))
    value = subject.bind()(*arguments)
    finite(value, "the value")
    if not jnp.issubdtype(value.dtype, jnp.floating):  # an id, or a place: nothing learns from it
        return
    for gradient in jax.grad(lambda *all_: jnp.sum(subject.bind()(*all_)), argnums=floats)(*arguments):
        finite(gradient, "a gradient")

"""Claims about fields that are computed position by position in a forward pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase, is_quantity, on_batch
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import finite, same, same_slopes
from dovetail_kit.conformance.subject import Subject

LOGITS_READ = {"logits", "ref_logits"}
TINY = 1e-4
IMPOSSIBLE = -1e4
"""A logit whose probability is zero, and that times its logarithm, too."""


def _arguments(subject: Subject) -> list[Any]:
    known = batch.known_fields()
    return [jnp.asarray(batch.field(name, known)) for name in subject.component.reads]


def _values(subject: Subject) -> np.ndarray:
    return subject.once("values", lambda: np.asarray(subject.bind()(*_arguments(subject))))


@check("field", when=is_quantity, fix="Return one number for each position: reduce the last axis, whatever its size.")
def one_for_each_position(subject: Subject) -> None:
    """It returns one number for each position: the engine refuses vectors, which would take too much memory.

    A field is stored for each token of the batch beside the log-probabilities.
    """
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
    order = np.random.default_rng(0).permutation(batch.ROWS * batch.TOKENS)
    mixed = subject.bind()(*(value.reshape(-1, *value.shape[2:])[order] for value in _arguments(subject)))
    same(mixed, whole.reshape(-1, *whole.shape[2:])[order], "with the positions in another order: the value")


@check("field", when=is_quantity, fix="Use jnp, and no Python that looks at numbers.")
def quantity_jit(subject: Subject) -> None:
    """It can be compiled, and then gives the same values, in float32.

    It is evaluated inside the compiled forward pass, where Python cannot look at numbers.
    """

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
    """Logits of ±10⁴, as from a model that is certain, give finite values and gradients.

    One certain token would turn the whole update into NaN.
    """
    arguments = [value * 1e4 if jnp.issubdtype(value.dtype, jnp.floating) else value for value in _arguments(subject)]
    floats = tuple(i for i, value in enumerate(arguments) if jnp.issubdtype(value.dtype, jnp.floating))
    value = subject.bind()(*arguments)
    finite(value, "the value")
    if not jnp.issubdtype(value.dtype, jnp.floating):  # an id, or a place: nothing learns from it
        return
    for gradient in jax.grad(lambda *all_: jnp.sum(subject.bind()(*all_)), argnums=floats)(*arguments):
        finite(gradient, "a gradient")


@check("field", when=is_quantity, fix="Compute in float32: in half precision only two or three digits are left.")
def small_differences_show(subject: Subject) -> None:
    """Logits that differ in the fourth digit give other values, if the gradient says that they matter.

    An entropy in half precision moves in steps, and is zero where it should be small.
    """
    arguments, value = _arguments(subject), _values(subject)
    floats = tuple(i for i, x in enumerate(arguments) if jnp.issubdtype(x.dtype, jnp.floating))
    if not floats or not np.issubdtype(value.dtype, np.floating):
        return
    rng = np.random.default_rng(0)
    steps = {i: np.float32(TINY) * rng.normal(size=arguments[i].shape).astype(np.float32) for i in floats}
    slopes = jax.grad(lambda *all_: jnp.sum(subject.bind()(*all_)), argnums=floats)(*arguments)
    moves = [np.sum(np.asarray(slope) * steps[i], axis=-1) for i, slope in zip(floats, slopes, strict=True)]
    expected = np.sum(moves, axis=0)
    found = np.asarray(subject.bind()(*(x + steps[i] if i in steps else x for i, x in enumerate(arguments)))) - value
    matters = np.abs(expected) > 20 * np.spacing(np.maximum(np.abs(value), 1.0))
    if matters.any() and not np.abs(found - expected)[matters].mean() < 0.3 * np.abs(expected[matters]).mean():
        apart = np.abs(found - expected)[matters].mean()
        raise Failed(
            f"with logits moved by about {TINY:g} the values should change by {np.abs(expected)[matters].mean():.3g} on"
            f" average, says the gradient; what they change by is {apart:.3g} off that"
        )


@check(
    "field",
    when=is_quantity,
    unless="surrogate",
    fix="Find the jax.lax.stop_gradient or the custom derivative that is in the way; declare surrogate=True if it is"
    " intended.",
)
def finite_differences(subject: Subject) -> None:
    """The gradient of its sum agrees with central differences in random directions.

    A bonus or a loss that reads it learns through it. With a part of it detached, the loss looks right, and trains
    nothing or something else.
    """
    arguments, value = _arguments(subject), _values(subject)
    floats = tuple(i for i, x in enumerate(arguments) if jnp.issubdtype(x.dtype, jnp.floating))
    if not floats or not np.issubdtype(value.dtype, np.floating):
        return
    slopes = jax.grad(lambda *all_: jnp.sum(subject.bind()(*all_)), argnums=floats)(*arguments)

    def total(moved: Any) -> float:
        values = subject.bind()(*(moved.get(i, x) for i, x in enumerate(arguments)))
        return float(np.sum(np.asarray(values).astype(np.float64)))

    same_slopes(total, dict(zip(floats, slopes, strict=True)), {i: arguments[i] for i in floats})


@check(
    "field",
    when=lambda component: is_quantity(component) and bool(LOGITS_READ & {*component.reads}),
    unless="unnormalised",
    fix="Take jax.nn.log_softmax(logits) first; declare unnormalised=True where the level of the logits is meant.",
)
def the_level_of_logits_says_nothing(subject: Subject) -> None:
    """A number added to all logits of a position changes nothing: the probabilities are the same.

    What is computed from raw logits depends on where training happens to put their mean, and drifts with it.
    """
    known = batch.known_fields()
    level = np.random.default_rng(1).normal(size=(batch.ROWS, batch.TOKENS, 1)).astype(np.float32)
    for times, within in ((1, 1e-4), (100, 1e-2)):  # the exponential of the latter overflows
        arguments = [
            jnp.asarray(batch.field(name, known) + times * level if name in LOGITS_READ else batch.field(name, known))
            for name in subject.component.reads
        ]
        told = f"with a constant of up to {np.abs(times * level).max():.3g} on the logits: the value"
        same(subject.bind()(*arguments), _values(subject), told, within=within)


@check(
    "field",
    when=lambda component: is_quantity(component) and "logits" in component.reads,
    fix="Sum over the vocabulary with the probabilities as weights, and divide by no vocabulary size. A logit of"
    f" padding is {IMPOSSIBLE:g}, not -inf: leave a token out by its probability.",
)
def impossible_tokens_say_nothing(subject: Subject) -> None:
    """Three more tokens in the vocabulary whose probability is zero change nothing.

    Vocabularies are padded to round sizes, and a mean over all of their tokens depends on how far.
    """
    before = _values(subject)
    wider = [
        jnp.concatenate([value, jnp.full((*value.shape[:-1], 3), IMPOSSIBLE)], axis=-1)
        if name.endswith("logits") and value.ndim == 3
        else value
        for name, value in zip(subject.component.reads, _arguments(subject), strict=True)
    ]
    same(subject.bind()(*wider), before, "with three impossible tokens: the value")


@check("field", when=on_batch, reads=["mask"], fix="Combine what is selected with the mask, last.")
def selects_policy_tokens(subject: Subject) -> None:
    """A selection, of true and false, is false outside the mask.

    Padding that counts as a log-probability of zero is the likeliest of all tokens: it alone would be selected.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    value = case.run(fields).value
    if value.dtype == bool and value.shape == fields["mask"].shape and (value & ~fields["mask"]).any():
        count, right = (value & ~fields["mask"]).sum(), (value & fields["mask"]).sum()
        raise Failed(f"it selects {count} tokens outside the mask, and {right} inside")

"""Requirements of compilation for a component that maps fields to arrays: it is traceable, pure and deterministic."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.errors import listing
from dovetail_kit.conformance.case import LEARNT, ArrayCase, on_batch
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import read_where, same, same_results
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.values import ARRAYS


@check(*ARRAYS, when=on_batch, fix="Use jnp.where and jax.lax.cond instead of if, and jnp instead of np and float().")
def jit(subject: Subject) -> None:
    """It can be compiled, and then gives the same results.

    The engine compiles every step. Python that needs a number, such as `if`, float() or np.asarray, cannot be traced.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    try:
        compiled = case.compiled(fields)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise Failed(f"it cannot be traced: {str(error).strip().splitlines()[0]}") from None
    same_results(compiled, case.first(), "compiled against eager", mask=fields["mask"])


@check(*ARRAYS, when=on_batch, fix="Treat hyperparameters as arrays: use jnp functions instead of if, float(), int().")
def traced_numbers(subject: Subject) -> None:
    """Other data and other float hyperparameters reuse the program that was compiled first.

    Trials of a sweep that differ only in numbers share one executable; otherwise each compiles its own, which takes
    minutes for a real model. `Annotated[float, dovetail.STATIC]` marks a number that determines a shape.
    """
    case = ArrayCase.of(subject)
    try:
        case.run(case.fields())
    except Inapplicable:
        case.constant(case.fields())  # if that fails too, the hyperparameters are not the cause
        raise Failed(f"it can be compiled only with {listing(subject.floats)} as constants") from None
    traced = case.traces
    case.run(case.fields(seed=1), {name: np.float32(value * 0.9) for name, value in subject.floats.items()})
    if case.traces != traced:
        raise Failed("it was traced again")


@check(*ARRAYS, when=on_batch, fix="Return new arrays, and take randomness from a PRNG key: read the field 'key'.")
def purity(subject: Subject) -> None:
    """It changes none of its arguments, and draws nothing from a global generator.

    Compiled, such a statement runs once and never again: a number drawn while tracing is the same at every step.
    """
    _, changed = ArrayCase.of(subject).second()
    if changed:
        raise Failed(f"a call changes {listing(changed)}")


@check(*ARRAYS, when=on_batch, fix="Keep nothing between calls; an estimator that remembers reads the field 'state'.")
def determinism(subject: Subject) -> None:
    """The same inputs give bit-identical results, whatever was computed in between.

    Otherwise a run could not be resumed bit for bit, nor could two arms of an A/B test be compared.
    """
    case = ArrayCase.of(subject)
    mask = case.fields()["mask"]
    first, (again, _) = case.first(), case.second()
    if any(
        a[read_where(a, mask)].tobytes() != b[read_where(b, mask)].tobytes()
        for a, b in zip(again.values, first.values, strict=True)
    ):
        again = case.again()  # the second call had other numbers outside the mask
        for ours, theirs in zip(again.values, first.values, strict=True):
            same(ours, theirs, "called again, the value", within=0.0)
    compiled, other = (case.run(case.fields()) for _ in range(2))
    for ours, theirs in zip(compiled.values, other.values, strict=True):
        same(ours, theirs, "compiled and called again, the value", within=0.0, where=read_where(ours, mask))


@check(*ARRAYS, when=on_batch, fix="Use operations on arrays, with axes counted from the end: axis=-1.")
def vmap(subject: Subject) -> None:
    """Several batches at once, under jax.vmap, give the same results as each one alone.

    A sweep trains trials that differ only in numbers side by side.
    """
    case = ArrayCase.of(subject)
    batches = [case.fields(seed) for seed in (0, 1)]
    stacked = jax.tree.map(lambda *values: jnp.stack([jnp.asarray(v) for v in values]), *batches)

    def together(fields: Any) -> Any:
        return jax.vmap(lambda each: case.call(each, subject.floats)[0])(fields)

    shapes = [value.shape for value in jax.eval_shape(together, stacked)]
    expected = [(2, *value.shape) for value in case.run(batches[0]).values]
    if shapes != expected:
        raise Failed(f"two batches give shapes {shapes} instead of {expected}")
    if subject.component.kind not in LEARNT:  # the shapes are right, and JAX's batching rules do the rest
        return
    found = together(stacked)
    for number, fields in enumerate(batches):
        for ours, theirs in zip(found, case.run(fields).values, strict=True):
            same(ours[number], theirs, f"batch {number} of two: the value", where=fields["mask"])

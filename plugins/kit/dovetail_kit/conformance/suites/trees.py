"""Claims about optimisers of many arrays: any tree of them, whose norm is meant, and what they remember for long."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.errors import listing
from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import finite
from dovetail_kit.conformance.subject import Subject, allows, said_of
from dovetail_kit.conformance.suites.optimizers import LIMIT, NORM

RATE: Final = 1e-2
MOMENTUM: Final = ("momentum", "b1", "beta1", "mean_decay")
PUSHES: Final = 20
LONG: Final = 300
"""More steps than eight bits count, and than bfloat16 tells apart."""
FEW: Final = 8
SCALES: Final = (1e-3, 1.0, 1e3)
COURSE: Final = (1.0, 1.0, -20.0, 1.0)
SPIKED, SPIKE = 2, 1e3
"""In this step of that course one array's gradient is so many times as large."""

OF_NORMS: Final = re.compile(r"\b(norms?|rms)\b|‖", re.IGNORECASE)
OF_LAYERS: Final = re.compile(r"\bdecay|\bbias|\b(layer|rms|batch|group)[- ]?norms?\b", re.IGNORECASE)
"""What a sentence says that means norms that are layers of a model."""
OF_EACH: Final = re.compile(
    r"\b(each|every|per|an?|one|its own|the same)[- ](\w+ )?(array|layer|matrix|tensor|leaf|parameter)\b"
    r"|\blayer-?wise\b",
    re.IGNORECASE,
)
OF_ALL: Final = re.compile(
    r"\bglobal(ly)?\b|\b(all|whole|entire)\b|\btogether\b|\bjoint(ly)?\b|\bglobal_norm\b", re.IGNORECASE
)
"""How a docstring may mean all arrays, and says so only with one of the words below."""
TOGETHER: Final = re.compile(
    r"\bglobal (\w+ )?(norm|rms)\b|\b(norm|rms) (of|over) (the )?(whole|entire) (gradient|tree|update|model)\b"
    r"|\b(norm|rms) (of|over) all (of )?(the )?(arrays|gradients|parameters|leaves|weights)( together|[.,;:])",
    re.IGNORECASE,
)
DENIED: Final = re.compile(r"\b(not|never|nor|rather than|instead of)\b[^,.;:)]*", re.IGNORECASE)
NO_BOUND: Final = re.compile(r"decay|momentum|eps")
"""In names, that a number of zero turns off something else than a bound."""

Tree = dict[str, Any]


def _nested() -> Tree:
    """Return weights as a model has them: within one another, of none to three axes, none of which is like another."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    layers = {number: {"wide": drawn(2, 3), "tall": drawn(4, 2), "scale": drawn(3)} for number in range(2)}
    return {"layers": layers, "experts": drawn(2, 3, 4), "single": drawn(1), "bias": drawn()}


def _flat() -> Tree:
    """Return two matrices and two vectors."""
    names = {"first": (2, 3), "second": (3, 2), "scale": (3,), "bias": (2,)}
    rng = np.random.default_rng(1)
    return {name: jnp.asarray(1 + rng.random(shape), jnp.float32) for name, shape in names.items()}


@check("optimizer", fix="Go through the weights with jax.tree.map, and over the axes of each array, however many.")
def takes_any_tree(subject: Subject) -> None:
    """Weights may lie within one another, and have none to three axes of different lengths: updates are like them.

    A model's weights are such a tree. What was tried on square matrices may take rows for columns.
    """
    with jax.numpy_dtype_promotion("standard"):
        optimizer, params = subject.bind(**subject.floats)(jnp.float32(RATE)), _nested()
        updates: Any = params
        try:
            state, update = optimizer.init(params), jax.jit(optimizer.update)
            for _ in range(2):
                updates, state = update(params, state, params)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            told = str(error).strip().splitlines() or [""]
            raise Failed(f"with weights in a tree it raises {type(error).__name__}: {told[0]}") from None
    if jax.tree.structure(updates) != jax.tree.structure(params):
        raise Failed(f"for weights {_tree(params)} its updates are {_tree(updates)}")
    for (path, update), weight in zip(jax.tree.leaves_with_path(updates), jax.tree.leaves(params), strict=True):
        if jnp.shape(update) != weight.shape:
            raise Failed(f"for an array of shape {list(weight.shape)} the update is of shape {list(jnp.shape(update))}")
        finite(update, f"the update of {jax.tree_util.keystr(path)}, of shape {list(weight.shape)},")


def _tree(tree: Any) -> str:
    return listing(jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(tree))


def _momenta(component: Component) -> list[str]:
    return [name for name in MOMENTUM if name in component.params and not component.declares.get("noisy")]


@check(
    "optimizer",
    unless="undefined_at_rest",
    when=lambda component: bool(_momenta(component)),
    fix="Keep `momentum` of the mean, and add the gradient, or 1 - momentum of it.",
)
def a_larger_momentum_keeps_more(subject: Subject) -> None:
    """The larger a number called `momentum`, `b1` or `beta1` is, the more of a step is left where the gradient ends.

    With the two shares exchanged, a mean over ten gradients is all but the last one, and noise is what a run follows.
    """
    for name in _momenta(subject.component):
        if name not in subject.floats or not all(allows(subject.component, name, value) for value in (0.1, 0.9)):
            continue
        left = {value: _left_of_a_step(subject, {name: np.float32(value)}) for value in (0.1, 0.9)}
        if left[0.9] < left[0.1] - 1e-3:
            raise Failed(
                f"after {PUSHES} gradients of 1, one of 0 makes a step {left[0.1]:.3g} times as long as that before"
                f" with '{name}' = 0.1, and {left[0.9]:.3g} times with 0.9"
            )


def _left_of_a_step(subject: Subject, changed: Mapping[str, Any]) -> float:
    with jax.numpy_dtype_promotion("standard"):
        optimizer, params = subject.bind(**(subject.floats | dict(changed)))(jnp.float32(RATE)), {"w": jnp.zeros(3)}
        state, update = optimizer.init(params), jax.jit(optimizer.update)
        step = params
        for _ in range(PUSHES):
            step, state = update({"w": jnp.ones(3)}, state, params)
        last, _ = update({"w": jnp.zeros(3)}, state, params)
    before = float(jnp.abs(step["w"]).max())
    if not before:
        raise Inapplicable(f"along {PUSHES} equal gradients its last step is 0")
    return float(jnp.abs(last["w"]).max()) / before


@check("optimizer", fix="Count in jnp.int32, as optax does: jnp.zeros((), jnp.int32), and optax.safe_increment.")
def counts_for_long(subject: Subject) -> None:
    """In 300 steps no count in its state wraps round, or stops because it has too few digits.

    A count of eight bits is negative from step 128 on, and one in bfloat16 stays at 256: so does a correction by it.
    """
    with jax.numpy_dtype_promotion("standard"):
        optimizer, params = subject.bind(**subject.floats)(jnp.float32(RATE)), _flat()
        update, state = jax.jit(optimizer.update), optimizer.init(params)
        states = [_scalars(state)]
        for _ in range(LONG):
            _, state = update(params, state, params)
            states.append(_scalars(state))
    for name, first in states[0].items():
        course = [each[name] for each in states]
        for step, (before, after) in enumerate(pairwise(course)):
            if first.dtype.kind in "iu" and abs(int(after) - int(before)) >= 2 ** (8 * first.dtype.itemsize - 1):
                raise Failed(f"in step {step + 1} state{name} goes from {before} to {after}")
        counts = all(float(after) - float(before) == 1 for before, after in pairwise(course[:FEW]))
        if counts and first.dtype.itemsize < 4 and course[-1] == course[-2]:
            raise Failed(f"state{name} counts steps in {first.dtype}, and after {LONG} of them is {course[-1]}")


def _scalars(state: Any) -> dict[str, Any]:
    """Return the numbers of a state that are no arrays, by their paths."""
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree.leaves_with_path(state)
        if jnp.shape(leaf) == () and jnp.issubdtype(jnp.result_type(leaf), jnp.number)
    }


def _sentences_on_norms(component: Component) -> list[str]:
    """Return the sentences of its docstring that speak of norms, without what they deny."""
    text = " ".join(line for line in component.doc.split("\n") if not line.lstrip().startswith((">>>", "...")))
    sentences = [DENIED.sub("", each) for each in re.split(r"(?<=[.;])\s", " ".join(text.split()))]
    return [each for each in sentences if OF_NORMS.search(each) and not OF_LAYERS.search(each)]


def _is_said_to_be(meant: re.Pattern[str], other: re.Pattern[str]) -> Callable[[Component], bool]:
    """Tell whether a docstring says of norms the one, and nowhere the other."""

    def says(component: Component) -> bool:
        said = _sentences_on_norms(component)
        is_plain = any(meant.search(each) for each in said) and not any(other.search(each) for each in said)
        return is_plain and not component.declares.get("noisy")

    return says


@check(
    "optimizer",
    unless="undefined_at_rest",
    when=_is_said_to_be(OF_EACH, OF_ALL),
    fix="Take the norm within jax.tree.map, of one array: jnp.linalg.norm(g); or correct the docstring.",
)
def norms_of_each_array(subject: Subject) -> None:
    """If its docstring says that norms are those of each array, a larger gradient of one array changes no other's step.

    Taken of all arrays together, one layer whose gradient is large stops all others.
    """
    changed: dict[str, Any] = {}
    said = [part for each in _sentences_on_norms(subject.component) for part in each.split(",") if OF_EACH.search(part)]
    for name in subject.component.params:
        own = OF_EACH.search(said_of(subject.component, name)) or any(name in part for part in said)
        if not own and LIMIT.search(name):  # which may well be that of all arrays
            if name not in subject.floats or not allows(subject.component, name, 1e12):
                raise Inapplicable(f"'{name}' cannot be so large that it bounds nothing")
            changed[name] = np.float32(1e12)
    for scale in SCALES:
        seen = _moved_by_another(subject, scale, changed)
        if seen:
            raise Failed(f"with a gradient {SPIKE:g} times as large of one array, the step of another {seen}")


@check(
    "optimizer",
    unless="undefined_at_rest",
    when=_is_said_to_be(TOGETHER, OF_EACH),
    fix="Take the norm once, of the whole tree: optax.tree.norm(gradients); or correct the docstring. If it matters"
    f" only after more than {len(COURSE)} steps, declare settings={{'name': value}} with which it does before.",
)
def norms_of_all_arrays(subject: Subject) -> None:
    """If its docstring says that a norm is that of all arrays together, a much larger gradient of one array changes
    the steps of others.

    Taken of each array, a gradient is turned where it should only be shortened.
    """
    changed = {name: np.float32(1) for name in subject.component.params if NORM.search(name)}
    if any(_moved_by_another(subject, scale, changed) for scale in SCALES):
        return
    unset = {name for name, value in subject.params.items() if not value and not NO_BOUND.search(name)}
    for name in sorted(unset - changed.keys()):
        raise Inapplicable(f"'{name}' may turn it off: declare settings={{'{name}': ...}} with which it is on")
    raise Failed(f"the steps of all other arrays are the same where the gradient of one is {SPIKE:g} times as large")


def _moved_by_another(subject: Subject, scale: float, changed: Mapping[str, Any]) -> str:
    """Say how the steps of an array change where another one's gradient is large for once; empty if they do not."""
    (before, after) = (_walk(subject, scale, spike, changed) for spike in (1.0, SPIKE))
    for ours, theirs in zip(before, after, strict=True):
        for name in ours:
            if name != "first" and not np.allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-9 * RATE):
                return f"is {np.abs(theirs[name]).max():.6g} instead of {np.abs(ours[name]).max():.6g}"
    return ""


def _walk(
    subject: Subject, scale: float, spike: float, changed: Mapping[str, Any] = MappingProxyType({})
) -> list[dict[str, np.ndarray]]:
    """Return the updates of a few steps, in one of which the gradient of the first array is so many times as large."""

    def compiled() -> tuple[Any, Any]:
        optimizer = subject.bind(**(subject.floats | dict(changed)))(jnp.float32(RATE))
        return optimizer.init(_flat()), jax.jit(optimizer.update)

    with jax.numpy_dtype_promotion("standard"):
        state, update = subject.once(("walk", *changed), compiled)
        params, found = _flat(), []
        for step, factor in enumerate(COURSE):
            gradient = {name: jnp.float32(factor * scale) * value for name, value in params.items()}
            if step == SPIKED:
                gradient["first"] = jnp.float32(spike) * gradient["first"]
            updates, state = update(gradient, state, params)
            found.append({name: np.asarray(value) for name, value in updates.items()})
    return found

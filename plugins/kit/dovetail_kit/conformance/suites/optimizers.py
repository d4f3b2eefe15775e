"""Claims about optimisers over many steps: what they keep, how their steps settle, and what a decay of weights does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.ranges import bounds
from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import finite
from dovetail_kit.conformance.subject import Subject, allows
from dovetail_kit.conformance.suites.hyperparameters import own_numbers
from dovetail_kit.conformance.suites.numbers import quadratic_params

OF_ADAM = ({"b1", "b2"}, {"beta1", "beta2"})
"""What the decays of a mean and of a second moment are called where both are corrected for their start at zero."""
HUMP = 1.5
SEVERAL = 300
FEW = 4
DECAY = "weight_decay"
SPARED = re.compile(
    r"\b(neither|nor|no|not|never|without|except|but)\b[^,]*\b(norms(?! of)|biases|vectors)\b"
    r"|\b(norms|biases|vectors)\b[^,]*\b(not|never)\b"
    r"|\bonly (?:\w+ ){0,2}(matrices|arrays with two axes)|\b(matrices|two axes or more) (only|alone)\b",
    re.IGNORECASE,
)
"""How a docstring says that norms and biases do not decay."""
BOTH = re.compile(r"'all'|\bincluding\b|\b(all|every) (weights?|parameters?|arrays?)\b", re.IGNORECASE)
"""How it says that they may."""
NORM = re.compile(r"^(clip_norm|max_norm|max_grad_norm|max_gradient_norm)$")
LIMIT = re.compile(r"^(bound|clip|clip_norm|max_norm|max_grad_norm|max_step)$")


def _steps(
    subject: Subject, steps: int, *, scale: float = 1.0, changed: Mapping[str, Any] = MappingProxyType({})
) -> tuple[list[Any], list[Any]]:
    """Return the updates, and the states before and after, of steps along the same gradient, at the same weights."""
    with jax.numpy_dtype_promotion("standard"):
        optimizer = subject.bind(**(subject.floats | dict(changed)))(jnp.float32(1e-2))
        params = quadratic_params()
        gradient = jax.tree.map(lambda x: jnp.float32(scale) * x, params)
        update = jax.jit(optimizer.update)
        states, found = [optimizer.init(params)], []
        for _ in range(steps):
            updates, state = update(gradient, states[-1], params)
            found.append(jax.tree.map(np.asarray, updates))
            states.append(state)
    return found, states


@check(
    "optimizer",
    name="finite_within_its_range",
    fix="Guard what is divided by, or let the range leave that number out: Gt(0), Lt(1).",
)
def steps_within_its_range_are_finite(subject: Subject) -> None:
    """Each number that its annotation bounds may be 0, or 1, if the bounds hold them: some steps are finite.

    A config may set what the range allows. A decay of 0 or of 1 is often 0/0, not always at the first step.
    """
    for name in own_numbers(subject):
        ends = bounds(subject.component.hints[name])
        for value in (0.0, 1.0) if ends else ():
            if all(end.holds(value) for end in ends):
                updates, _ = _steps(subject, FEW, changed={name: np.float32(value)})
                for number, step in enumerate(updates, 1):
                    for leaf in jax.tree.leaves(step):
                        finite(leaf, f"with '{name}' = {value:g}, which its range allows: step {number}")


@check("optimizer", fix="Return the count with the moments: count + 1, optax.safe_increment(state.count).")
def counts_its_steps(subject: Subject) -> None:
    """If its state has whole numbers, some of them change in the first steps.

    A count that stays where it began makes every step the first one: a correction for the start that goes on for ever.
    """
    _, states = _steps(subject, 8)
    counts = [
        (number, jax.tree_util.keystr(path))
        for number, (path, leaf) in enumerate(jax.tree.leaves_with_path(states[0]))
        if jnp.shape(leaf) == () and jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.integer)
    ]
    leaves = [jax.tree.leaves(state) for state in states]
    if counts and not any(leaf[number] != leaves[0][number] for leaf in leaves for number, _ in counts):
        raise Failed(f"in {len(states) - 1} steps state{counts[0][1]} stays {leaves[0][counts[0][0]]}")


def _is_adam(component: Component) -> bool:
    return any(names <= {*component.params} for names in OF_ADAM) and not component.declares.get("noisy")


@check(
    "optimizer",
    when=_is_adam,
    unless="scheduled",
    fix="Divide the mean by 1 - b1**count and the second moment by 1 - b2**count, and return both in the state.",
)
def steps_settle(subject: Subject) -> None:
    """With the decays of Adam, b1 and b2, the steps along one gradient do not first grow and then shrink.

    Means that start at zero are too small at first, the mean of squares for longer. Where they are not corrected, the
    first steps of a run, at its highest noise, are several times too long.
    """
    updates, _ = _steps(subject, SEVERAL)
    sizes = np.array([sum(np.abs(leaf).sum() for leaf in jax.tree.leaves(step)) for step in updates])
    highest = int(np.argmax(sizes))
    if sizes[highest] > HUMP * max(sizes[0], sizes[-1]):
        raise Failed(
            f"along one gradient step 1 is {sizes[0]:.6g} long, step {highest + 1} {sizes[highest]:.6g} and step"
            f" {SEVERAL} {sizes[-1]:.6g}"
        )


@check(
    "optimizer", unless="undefined_at_rest", fix="Return what was computed: state._replace(count=count, square=square)."
)
def keeps_its_moments(subject: Subject) -> None:
    """Whatever its state has in the shape of a weight, and begins with zeros, changes in the first steps.

    A moment that is computed and not kept makes every step the first one, while its correction goes on.
    """
    _, states = _steps(subject, 4)
    shapes = {leaf.shape for leaf in jax.tree.leaves(quadratic_params()) if leaf.size > 1}
    leaves = [jax.tree.leaves_with_path(state) for state in states]
    for number, (path, first) in enumerate(leaves[0]):
        is_moment = jnp.shape(first) in shapes and jnp.issubdtype(first.dtype, jnp.inexact)  # a key may be [0, 0]
        if not is_moment or np.any(np.asarray(first, np.float32)):
            continue
        if not any(np.any(np.asarray(state[number][1], np.float32)) for state in leaves[1:]):
            raise Failed(
                f"after each of {len(leaves) - 1} steps state{jax.tree_util.keystr(path)} is zero, as at first"
            )


@check(
    "optimizer",
    unless="undefined_at_rest",
    when=lambda component: DECAY in component.params and not component.declares.get("noisy"),
    fix="Add the decay after the scaling by moments: optax.add_decayed_weights comes behind optax.scale_by_adam. A"
    " penalty that belongs to the gradient has another name, such as l2.",
)
def decay_is_decoupled(subject: Subject) -> None:
    """Without a gradient, twice the `weight_decay` shrinks weights twice as much.

    A decay that goes through the scaling of the moments moves every weight by a whole step, whatever the number is.
    """
    if DECAY not in subject.floats or not all(allows(subject.component, DECAY, value) for value in (0.05, 0.1)):
        raise Inapplicable("its weight_decay is not a number that can be 0.05 or 0.1")
    once, twice = (
        _steps(subject, 1, scale=0.0, changed={DECAY: np.float32(decay)})[0][0]["kernel"] for decay in (0.05, 0.1)
    )
    if not once.any() and not twice.any():
        raise Failed("with 'weight_decay' = 0.1 a matrix without a gradient does not shrink")
    if not np.allclose(twice, 2 * once, rtol=1e-2, atol=1e-8):
        raise Failed(
            f"without a gradient, 'weight_decay' = 0.1 moves a weight by {twice.flat[0]:.6g}, and 0.05 by"
            f" {once.flat[0]:.6g}"
        )


def _spares_vectors(component: Component) -> bool:
    return any(SPARED.search(said) and not BOTH.search(said) for said in _sentences_on_decay(component))


def _sentences_on_decay(component: Component) -> list[str]:
    """Return the sentences and clauses of its docstring that speak of decay."""
    text = " ".join(line for line in component.doc.split("\n") if not line.lstrip().startswith((">>>", "...")))
    return [part for part in re.split(r"[.;:]\s", " ".join(text.split())) if re.search(r"\bdecay", part)]


@check(
    "optimizer",
    when=lambda component: (
        DECAY in component.params and not component.declares.get("noisy") and _spares_vectors(component)
    ),
    fix="Let arrays of two axes or more decay alone: p.ndim >= 2, or a mask for optax.add_decayed_weights; or correct"
    " the docstring.",
)
def decay_spares_what_it_says(subject: Subject) -> None:
    """If its docstring says that norms and biases do not decay, or matrices alone, `weight_decay` moves no array of one
    axis or none.

    The scale of a norm that decays rescales its layer, step by step, and regularises nothing.
    """
    if DECAY not in subject.floats or not allows(subject.component, DECAY, 0.1):
        raise Inapplicable("its weight_decay is not a number that can be 0.1")
    without, decayed = (
        _steps(subject, 1, changed={DECAY: np.float32(decay)})[0][0] if allows(subject.component, DECAY, decay) else {}
        for decay in (0.0, 0.1)
    )
    for name in ("w", "b"):
        if without and not np.allclose(without[name], decayed[name], rtol=1e-4, atol=1e-8):
            raise Failed(
                f"with 'weight_decay' = 0.1 the first step of an array of {decayed[name].ndim} axes is"
                f" {decayed[name].tolist()}, and {without[name].tolist()} with 0"
            )


def _limits(component: Component) -> list[str]:
    return [name for name in component.params if LIMIT.search(name)]


@check(
    "optimizer",
    unless="undefined_at_rest",
    when=lambda component: bool(_limits(component)) and not component.declares.get("noisy"),
    fix="Divide by max(1, norm / bound): what is below the bound stays as it is.",
)
def bounds_its_steps(subject: Subject) -> None:
    """With a number called `bound`, `clip` or `max_norm`, a gradient of 10⁶ makes no longer first step than one of 10³.

    With the quotient turned round, small steps shrink, and the outliers that it is there for are taken whole.
    """
    for name in _limits(subject.component):
        if name not in subject.floats:
            continue
        sizes = [
            sum(float(np.abs(leaf).sum()) for leaf in jax.tree.leaves(_steps(subject, 1, scale=scale)[0][0]))
            for scale in (1e3, 1e6)
        ]
        if sizes[1] > 2 * sizes[0] + 1e-6:
            raise Failed(
                f"with '{name}' = {subject.floats[name]:g} the first step along a gradient of 10³ is {sizes[0]:.6g}"
                f" long, and {sizes[1]:.6g} along one of 10⁶"
            )


def _norms(component: Component) -> list[str]:
    return [name for name in component.params if NORM.search(name)]


@check(
    "optimizer",
    unless="undefined_at_rest",
    when=lambda component: bool(_norms(component)) and not component.declares.get("noisy"),
    fix="Clip before the gradient is scaled by its moments: optax.clip_by_global_norm comes first in the chain.",
)
def bounds_the_gradient(subject: Subject) -> None:
    """A number called `max_norm` or `max_grad_norm` does nothing to a gradient whose norm is far below it.

    Behind Adam's scaling it bounds the step, whose norm is the root of the number of weights: a smaller learning rate.
    """
    for name in _norms(subject.component):
        if name in subject.floats and allows(subject.component, name, 1e6):
            below, free = (
                _steps(subject, 1, scale=1e-3, changed={name: np.float32(bound)})[0][0]["kernel"]
                for bound in (subject.floats[name], 1e6)
            )
            if not np.allclose(below, free, rtol=1e-3, atol=1e-9):
                raise Failed(
                    f"with a gradient of norm below 0.01, '{name}' = {subject.floats[name]:g} makes the first step"
                    f" {np.abs(below).max():.6g}, and 10⁶ {np.abs(free).max():.6g}"
                )

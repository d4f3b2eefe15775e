"""Claims about policy losses, value losses and other terms of the loss."""

from __future__ import annotations

import re

import numpy as np

from dovetail.errors import listing
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import LEARNT, ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import Result, finite, read_where, same
from dovetail_kit.conformance.subject import Subject, allows
from dovetail_kit.conformance.suites.invariance import fits_other_shapes

LOSSES = tuple(kind for kind in LEARNT if kind != "kl")
BEHAVIOUR = ("old_logps", "ref_logps", "rollout_logps")
SHIFTS = (200.0, -200.0, 1e4, -1e4)
SCALE = re.compile(r"(^|_)(scale|coef|weight|factor)(_|$)")
UNLIKELY = (-1e-3, -12.0, -40.0)
"""Log-probabilities of tokens that are certain, rare, and hardly ever drawn."""
STEP = 2e-3
"""Step of finite differences, in nats: large enough for float32, small against any clip range."""
MOVED = 15.0
"""How far a policy has moved, in nats, that is beyond any bound of ordinary numbers."""


FAR, NEAR = 8.0, 0.1
"""What fields are multiplied by, so that bounds are met, or none is."""


@check(
    *LOSSES,
    fix="Apply the mask once, at the end; check the sign of what is clipped. A term that acts only beyond a bound"
    " declares settings={...} with a bound that ordinary numbers pass.",
)
def learns_from_policy_tokens(subject: Subject) -> None:
    """The gradient is exactly zero outside the mask, and somewhere inside it is not.

    Otherwise the policy learns from text that it has not written, or nothing at all.
    """
    case = ArrayCase.of(subject)
    for fields in (case.fields(), batch.scaled(case.fields(), FAR), batch.scaled(case.fields(), NEAR)):
        result, inside = case.run(fields), False
        for name, gradient in result.gradients.items():
            finite(gradient, f"the gradient by {name}")
            if gradient[~fields["mask"]].any():
                row, token = np.argwhere((gradient != 0) & ~fields["mask"])[0]
                raise Failed(f"the gradient by {name}[{row}, {token}] is {gradient[row, token]:.6g}, outside the mask")
            inside |= bool(gradient[fields["mask"]].any())
        if inside:  # otherwise it may be a term that acts beyond a bound alone
            return
    raise Failed(f"the gradients by {', '.join(result.gradients) or 'no field'} are zero everywhere")


@check(
    *LOSSES,
    unless="whole_groups",
    fix="Move the statistic to a component of kind 'field' or 'advantage', which sees the whole batch.",
)
def micro_batches(subject: Subject) -> None:
    """A completion's loss and gradient depend neither on the others in its micro-batch nor on how many there are.

    Micro-batches add up to the mini-batch only if rows are independent of one another. A mean, a rank or a deviation
    over the batch inside a loss makes the result depend on the split, and so on the available memory.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    result = case.run(fields)
    _alone(case, fields)
    _alone(case, near_on_policy(fields))  # where no bound hides what a sum over the batch does
    _alone(case, batch.scaled(fields, FAR))  # and where bounds are met
    if fits_other_shapes(case):  # then fewer rows have given the same already
        return
    rows = [0, 1, 5]
    few = case.eager(batch.take_rows(fields, rows))
    same(few.value, result.value[rows], "in a micro-batch of three: the value")


def _alone(case: ArrayCase, fields: batch.Fields) -> None:
    result = case.run(fields)
    halves = batch.ROWS // 2
    others = batch.take_rows(case.fields(seed=1), np.arange(batch.ROWS)[::-1])
    mixed = {
        name: np.concatenate([value[:halves], others[name][halves:]]) if batch.is_array(value) else value
        for name, value in fields.items()
    }
    swapped = case.run(mixed)
    same(swapped.value[:halves], result.value[:halves], "with other completions in the batch: the value")
    for name, gradient in result.gradients.items():
        what = f"with other completions in the batch: the gradient by {name}"
        same(swapped.gradients[name][:halves], gradient[:halves], what)


def near_on_policy(fields: batch.Fields) -> batch.Fields:
    """Return fields in which the policy that is trained has moved a little since collection."""
    if not {"logps", "old_logps"} <= fields.keys():
        return fields
    gap = np.float32(0.01) * (fields["logps"] - fields["old_logps"])
    near = {name: (fields["old_logps"] + gap).astype(np.float32) for name in ("logps", "rollout_logps")}
    return fields | {name: value for name, value in near.items() if name in fields}


@check(
    *LOSSES,
    fix="Bound what goes into an exponential, not what comes out: exp(clip(x, -20, 20)), not clip(exp(x), ...).",
)
def extremes(subject: Subject) -> None:
    """Log-ratios of ±200 and ±10⁴ give finite losses, gradients and metrics, for both signs of the advantage.

    A stale policy, or a token that was almost impossible for the sampler, gives such a ratio. Its exponential
    overflows, and infinity times zero is NaN even where clipping discards it.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    variable = next((name for name in ("logps", "values") if name in case.variables), None) or case.variable
    signs = (1.0, -1.0) if "advantages" in fields else (1.0,)
    for shift in SHIFTS:
        for sign in signs:
            moved = batch.farther(fields, variable, shift)
            if "advantages" in fields:
                moved["advantages"] = np.where(fields["mask"], sign * (np.abs(fields["advantages"]) + 0.1), 0)
                moved["advantages"] = moved["advantages"].astype(np.float32)
            what = f"with {variable} moved by {shift:g}" + (f" and A {'>' if sign > 0 else '<'} 0" * len(signs[1:]))
            result = case.run(moved)
            finite(result.value, f"{what}: the value")
            for name, gradient in result.gradients.items():
                finite(gradient, f"{what}: the gradient by {name}")
            for name, metric in result.metrics.items():
                finite(metric, f"{what}: the metric '{name}'", where=read_where(metric, moved["mask"]))


@check(
    *LEARNT,
    unless="surrogate",
    when=lambda component: not component.declares.get("unbiased_gradient"),  # which the value of a divergence may lack
    fix="Find the jax.lax.stop_gradient or the custom derivative that is in the way; declare surrogate=True if it is"
    " intended.",
)
def finite_differences(subject: Subject) -> None:
    """The gradient agrees with central differences of the value in random directions, also far from where the policy
    was.

    Otherwise a stop-gradient is in the way, or a handwritten derivative is wrong: perhaps beyond a bound alone, where
    the value goes on growing, and nothing pulls the policy back.
    """
    case = ArrayCase.of(subject)
    for where, fields in _near_and_far(case).items():
        if told := _other_slopes(case, fields):
            raise Failed(f"{where}the slope in four directions is {', '.join(told)}")


@check(
    *LEARNT,
    claim="surrogate",
    fix="Put jax.lax.stop_gradient around what the formula holds fixed, such as a baseline, a weight or a reference"
    " point; drop the claim if it holds nothing fixed.",
)
def holds_something_fixed(subject: Subject) -> None:
    """The gradient is not that of the value everywhere: that is what `surrogate` claims.

    Where a stop-gradient has been forgotten, the policy also learns to move what it should only be compared with.
    """
    case = ArrayCase.of(subject)
    batches = [*_near_and_far(case).values(), case.fields(seed=1)]
    if not any(_other_slopes(case, fields) for fields in batches):
        raise Failed("its gradient is the slope of its value in four directions, on the batch and far from it")


def _near_and_far(case: ArrayCase) -> dict[str, batch.Fields]:
    """Return the fields of the batch, and some in which the policy has moved far, by the words that say so."""
    fields = case.fields()
    moved = {shift: {name: fields[name] + np.float32(shift) for name in case.variables} for shift in (-MOVED, MOVED)}
    return {"": fields} | {
        f"with {' and '.join(case.variables)} moved by {shift:g}, ": fields | each for shift, each in moved.items()
    }


def _other_slopes(case: ArrayCase, fields: batch.Fields) -> list[str]:
    """Return what is wrong with the gradient in four directions; nothing if it is right in one of them."""
    result = case.run(fields)
    rng = np.random.default_rng(0)
    told = []
    for _ in range(4):  # one direction may step over a kink, such as a clip bound; all four hardly ever do
        total = 0.0
        moved = {name: rng.normal(size=fields[name].shape).astype(np.float32) for name in case.variables}
        for name, gradient in result.gradients.items():
            total += float(np.sum(gradient.astype(np.float64) * moved[name]))
        sides = [
            case.run(fields | {name: (fields[name] + sign * STEP * moved[name]).astype(np.float32) for name in moved})
            for sign in (1.0, -1.0)
        ]
        slope = (_total(sides[0], fields) - _total(sides[1], fields)) / (2 * STEP)
        if np.isclose(slope, total, rtol=2e-2, atol=2e-3):
            return []
        told.append(f"{total:.5g} instead of {slope:.5g}")
    return told


def _total(result: Result, fields: batch.Fields) -> float:
    return float(np.sum(fields["weights"].astype(np.float64) * result.value))


@check(
    *LOSSES,
    fix="Find the jax.lax.stop_gradient that swallows the term, or read the field no longer; declare idle=('field',) if"
    " a metric alone is made of it.",
)
def what_it_reads_trains(subject: Subject) -> None:
    """Other numbers in any field that it reads change the gradient.

    A penalty that is computed and then detached is seen in the loss and in its metrics, and trains nothing.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    before = case.run(fields).gradients
    idle = (*case.variables, *subject.declared.get("idle", ()))
    rng = np.random.default_rng(0)
    for name in case.component.reads:
        if name in idle or not batch.is_float(fields[name]):
            continue
        noise = rng.normal(size=np.shape(fields[name]))
        tried = [case.run(fields | {name: x.astype(fields[name].dtype)}) for x in (fields[name] + noise, -fields[name])]
        if all(np.array_equal(after.gradients[key], before[key]) for after in tried for key in before):
            raise Failed(f"with other numbers in '{name}' the gradient by {listing(before)} is the same")


@check(
    "policy_loss",
    claim="on_policy_gradient",
    fix="Write the loss so that its derivative by log π is -A at ratio 1; a weight that multiplies log π must be inside"
    " jax.lax.stop_gradient.",
)
def on_policy_gradient(subject: Subject) -> None:
    """On policy, where all log-probabilities agree, the gradient of a token's loss by its log π is -A.

    A float hyperparameter called `scale`, `coef`, `weight` or `factor` may multiply it; others may not.
    """
    case = ArrayCase.of(subject)
    fields = on_policy(case.fields())
    expected = -np.where(fields["mask"], fields["advantages"], 0) * fields["weights"]
    same(case.run(fields).gradients["logps"], expected, "on policy: the gradient by logps")
    for low in UNLIKELY:
        level = np.where(fields["mask"], np.float32(low), fields["logps"]).astype(np.float32)
        unlikely = {name: level for name in ("logps", *BEHAVIOUR) if name in fields}
        found = case.run(fields | unlikely).gradients["logps"]
        same(found, expected, f"on policy, where log π is {low:g}: the gradient by logps")
    for name, value in subject.floats.items():  # a factor that is one by default would go unnoticed
        if name not in subject.component.common and allows(subject.component, name, 0.5 * value):
            found = case.run(fields, subject.floats | {name: np.float32(0.5 * value)}).gradients["logps"]
            scales = SCALE.search(name)
            factor = float((found * expected).sum() / np.square(expected).sum()) if scales else 1.0
            same(found, factor * expected, f"on policy, with '{name}' = {0.5 * value:g}: the gradient by logps")


@check("policy_loss", reads=["advantages"], unless="regularised", fix="Multiply every term by the advantage.")
def zero_advantage(subject: Subject) -> None:
    """Where the advantage is zero, so is the gradient.

    A completion that is neither better nor worse than its group has no learning signal. If there is another term, such
    as a penalty or a regulariser, declare regularised=True.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    result = case.run(fields | {"advantages": np.zeros_like(fields["advantages"])})
    for name, gradient in result.gradients.items():
        same(gradient, np.zeros_like(gradient), f"with A = 0: the gradient by {name}", within=1e-7)


@check(
    "policy_loss",
    reads=["advantages", "logps"],
    unless="regularised",
    fix="Put what weighs a token inside jax.lax.stop_gradient.",
)
def learns_through_logps(subject: Subject) -> None:
    """Its gradient reaches the policy through the log-probabilities of its tokens, and through no other field.

    A weight by entropy that is differentiated raises the entropy of good tokens and lowers that of bad ones.
    """
    case = ArrayCase.of(subject)
    others = [name for name in case.variables if name != "logps"]
    result = case.run(case.fields())
    for name in others:
        if result.gradients[name].any():
            largest = float(np.abs(result.gradients[name]).max())
            raise Failed(f"it is differentiated by {name}, too: the largest gradient is {largest:.6g}")


@check(
    "policy_loss",
    reads=["advantages", "logps"],
    unless="regularised",
    fix="Check the sign, and which side is clipped.",
)
def gradient_direction(subject: Subject) -> None:
    """Gradient descent makes no token with A > 0 less likely, and no token with A < 0 more likely.

    A wrong sign, or an advantage taken from another row, trains the policy away from what is good.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    signs = np.where(np.arange(batch.ROWS) % 2, -1.0, 1.0)[:, None].astype(np.float32)
    advantages = np.where(fields["mask"], signs, 0).astype(np.float32)
    gradient = case.run(fields | {"advantages": advantages}).gradients["logps"]
    wrong = (gradient * advantages > 1e-6) & fields["mask"]
    if wrong.any():
        row, token = np.argwhere(wrong)[0]
        raise Failed(
            f"A[{row}, {token}] is {advantages[row, token]:g} and the gradient of the loss by logps is"
            f" {gradient[row, token]:.6g}, so descending makes the token"
            f" {'less' if advantages[row, token] > 0 else 'more'} likely"
        )


@check(
    "policy_loss",
    claim="pessimistic",
    fix="Take the larger loss, jnp.maximum(-A * r, -A * clip(r, 1 - ε, 1 + ε)), whatever the sign of A.",
)
def clip_side(subject: Subject) -> None:
    """The gradient stops where the ratio has moved far in the direction of A, and never where it has moved against it,
    also if the signs of A differ within a completion.

    If the wrong side is clipped for A < 0, the policy is neither held back where it moves too far, nor corrected where
    it has moved in the wrong direction. With regularised=True the gradient may also turn round instead of stopping.
    """
    case = ArrayCase.of(subject)
    fields = on_policy(case.fields())
    alternating = np.where(np.arange(batch.TOKENS) % 2, -1.0, 1.0)
    for signs in (np.ones(batch.TOKENS), -np.ones(batch.TOKENS), alternating, -alternating):
        advantages = np.where(fields["mask"], signs, 0).astype(np.float32)
        for shift in (3.0, -3.0):
            moved = fields | {"advantages": advantages, "logps": fields["logps"] + np.float32(shift)}
            gradient = case.run(moved).gradients["logps"]
            for sign in np.unique(signs).tolist():
                where = f"where A {'>' if sign > 0 else '<'} 0 and the log-ratio is {shift:+g}"
                where += ", and A has both signs in each row" * bool(np.ptp(signs))
                _judge_side(subject, gradient[advantages == sign], sign, shift, where)


def _judge_side(subject: Subject, gradient: np.ndarray, sign: float, shift: float, where: str) -> None:
    on = -sign * gradient if subject.declared.get("regularised") else np.abs(gradient)
    if sign * shift > 0 and (on > 1e-6).any():
        raise Failed(f"{where}, the gradient by logps is {gradient[np.argmax(on)]:.6g}, not 0")
    if sign * shift < 0 and (np.abs(gradient) < 1e-6).any():
        raise Failed(f"{where}, the gradient by logps is 0 at {np.sum(np.abs(gradient) < 1e-6)} tokens")


def on_policy(fields: batch.Fields) -> batch.Fields:
    """Return the fields with all policies equal."""
    return fields | {name: fields["logps"].copy() for name in BEHAVIOUR if name in fields}

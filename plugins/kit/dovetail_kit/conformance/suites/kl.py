"""Claims about KL estimators."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.registry import current
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import finite, same
from dovetail_kit.conformance.subject import Subject

SHIFTS = (200.0, -200.0, 1e4, -1e4)
EXACT = (
    "The expectation is a sum over the whole vocabulary at one position, while the tokens of the others stay, and not a"
    " mean over samples: chance plays no part, and any bias above 0.001 nats is seen. An estimate that looks at other"
    " positions, too, may have it over whole completions alone, which is another claim."
)


@check("kl", fix="Check which log-probability is subtracted from which, and constants such as the -1 of k3.")
def zero_at_equality(subject: Subject) -> None:
    """If both policies are equal, the estimate is zero at every token.

    The policy would be punished for being its own reference.
    """
    case = ArrayCase.of(subject)
    known = batch.known_fields() | {name: batch.known_fields()["logits"] for name in ("old_logits", "ref_logits")}
    fields = _fields(case, known)
    same(case.run(fields).value, np.zeros(fields["mask"].shape), "at equality: the value", where=fields["mask"])


@check("kl", fix="Bound the log-ratio before you exponentiate it.")
def extremes(subject: Subject) -> None:
    """Log-ratios of ±200 and ±10⁴ give finite estimates and gradients.

    A policy that is certain gives such ratios, and one estimate that is infinite destroys the update.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for shift in SHIFTS:
        for name in case.variables:
            result = case.run(batch.farther(fields, name, shift))
            finite(np.where(fields["mask"], result.value, 0), f"with {name} moved by {shift:g}: the value")
            for variable, gradient in result.gradients.items():
                finite(gradient, f"with {name} moved by {shift:g}: the gradient by {variable}")


@check("kl", fix="Leave what is not finite as it is; the engine leaves out positions without weight.")
def nan_is_seen(subject: Subject) -> None:
    """A NaN at a policy token stays a NaN.

    A NaN that becomes a number hides that something is wrong with the model.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name in case.variables:
        broken = fields[name].copy()
        broken[0, 0] = np.nan
        value = case.run(fields | {name: broken}).value[0, 0]
        if np.isfinite(value):
            raise Failed(f"{name}[0, 0] is NaN, but the value there is {value:.6g}")


@check("kl", claim="non_negative", fix="Drop the claim, or use an estimator such as k2 or k3.")
def non_negative(subject: Subject) -> None:
    """No estimate is below zero.

    What is built upon it, such as a bound or a square root, relies on the claim.
    """
    case = ArrayCase.of(subject)
    for seed in range(3):
        fields = case.fields(seed)
        least = case.run(fields).value[fields["mask"]].min()
        if least < -1e-6:
            raise Failed(f"the lowest value is {least:.6g}")


@check("kl", claim="unbiased_value", fix=f"Drop the claim, or correct the formula. {EXACT}")
def unbiased_value(subject: Subject) -> None:
    """The expectation of the estimate over the policy's samples is KL(π || π_ref).

    What is logged, and what a controller steers by, would not be the divergence.
    """
    expected, _ = _divergence(subject)
    value, _ = expected_kl(subject)
    same(value, expected, "the expected value, by position,", within=1e-3)


@check("kl", claim="unbiased_gradient", fix=f"Drop the claim, or correct the formula. {EXACT}")
def unbiased_gradient(subject: Subject) -> None:
    """The expectation of the estimate's gradient, with the samples held fixed, is that of KL(π || π_ref).

    Otherwise, as a loss, it minimises something else: k1 nothing, k3 the divergence in the other direction.
    """
    _, expected = _divergence(subject)
    _, gradient = expected_kl(subject)
    same(gradient, expected, "the expected gradient, by position and logit,", within=1e-3)


@check("kl", claim="zero_expected_gradient", fix=f"Drop the claim. {EXACT}")
def zero_expected_gradient(subject: Subject) -> None:
    """The expectation of the gradient is zero; the engine warns if such an estimator is used as a loss.

    The engine's warning goes by the claim.
    """
    _, gradient = expected_kl(subject)
    same(gradient, np.zeros_like(gradient), "the expected gradient, by position and logit,", within=1e-4)


@check(
    "kl",
    reads=["old_logps"],
    when=lambda component: bool({"unbiased_value", "unbiased_gradient"} & {*component.declares}),
    fix=f"Multiply by exp(logps - old_logps), not by its inverse. {EXACT}",
)
def unbiased_off_policy(subject: Subject) -> None:
    """Over samples of an older policy, an estimate that reads `old_logps` has the expectation that it claims.

    Such an estimate is there to correct for old samples. On policy, an inverted ratio is 1 as well.
    """
    expected, slope = _divergence(subject)
    value, gradient = expected_kl(subject, old=True)
    if subject.declared.get("unbiased_value"):
        same(value, expected, "over samples of an older policy: the expected value, by position,", within=1e-3)
    if subject.declared.get("unbiased_gradient"):
        same(gradient, slope, "over samples of an older policy: the expected gradient", within=1e-3)


@check(
    "kl",
    when=lambda component: "clamp" in component.params,
    fix="Bound the estimate, not the log-ratio that goes into it: jnp.minimum(k, clamp).",
)
def clamp_bounds_the_estimate(subject: Subject) -> None:
    """A number called `clamp` is the highest value that an estimate has where the sampler is the policy.

    With the log-ratio bounded instead, a single token may cost more than the whole completion.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for clamp in (0.1, 2.0):
        for shift in (3.0, -3.0):
            highest = case.eager(fields | _moved(fields, shift), clamp=clamp).value[fields["mask"]].max()
            if highest > clamp * (1 + 1e-5):
                raise Failed(f"with 'clamp' = {clamp:g} an estimate is {highest:.6g}")


def _moved(fields: batch.Fields, shift: float) -> batch.Fields:
    """Return the log-probabilities of a policy that is far from the reference, and is the sampler."""
    return {name: fields["logps"] + np.float32(shift) for name in ("logps", "old_logps") if name in fields}


def _fields(case: ArrayCase, known: batch.Fields) -> batch.Fields:
    reads = {name: batch.field(name, known) for name in case.component.reads}
    return reads | {name: known[name] for name in ("mask", "weights")}


def _enumerated(old: bool = False) -> batch.Fields:
    """Return rows that hold each id of the vocabulary, under the same logits, weighted by their probabilities under the
    policy, or under another one that has sampled them.
    """
    known = batch.known_fields()
    tokens = np.repeat((np.arange(batch.ROWS) % batch.VOCABULARY)[:, None], batch.TOKENS, axis=1).astype(np.int32)
    logits = np.repeat(known["logits"][:1], batch.ROWS, axis=0)
    reference = logits + np.float32(0.5) * np.repeat(known["answer_logits"][:1], batch.ROWS, axis=0)  # within any clamp
    sampler = logits + np.float32(0.3) * np.repeat(known["old_logits"][1:2], batch.ROWS, axis=0) if old else logits
    probabilities = np.array(jax.nn.softmax(sampler, axis=-1)[0].T)  # by token, then by position
    weights = np.concatenate([probabilities, np.zeros((batch.ROWS - batch.VOCABULARY, batch.TOKENS), np.float32)])
    return known | {
        "tokens": tokens,
        "logits": logits,
        "old_logits": sampler,
        "ref_logits": reference,
        "mask": weights > 0,
        "weights": weights.astype(np.float32),
    }


def expected_kl(subject: Subject, *, old: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return E[k] by position, and its gradient by the logits with the samples held fixed."""
    case = ArrayCase.of(subject)
    known = _enumerated(old)
    fields = _fields(case, known)
    result = case.run(fields)
    gradient = np.zeros_like(known["logits"])
    for name, cotangent in result.gradients.items():
        provider: Any = current().get("field", name)
        others = {read: jnp.asarray(known[read]) for read in provider.reads if read != "logits"}

        def provided(logits: jax.Array, provider: Any = provider, others: Any = others) -> jax.Array:
            return provider(*(logits if read == "logits" else others[read] for read in provider.reads))

        _, pull = jax.vjp(provided, jnp.asarray(known["logits"]))
        gradient += np.asarray(pull(jnp.asarray(cotangent))[0])
    value = np.where(fields["mask"], fields["weights"] * result.value, 0).sum(axis=0)
    return value, gradient.sum(axis=0)


def _divergence(subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    """Return KL(π || π_ref) by position, and its gradient by the logits."""
    known = _enumerated()
    logps, ref_logps = (np.asarray(jax.nn.log_softmax(known[name][0])) for name in ("logits", "ref_logits"))
    p = np.exp(logps)
    value = np.sum(p * (logps - ref_logps), axis=-1)
    return value, p * (logps - ref_logps - value[:, None])

"""Field `jensen_shannon`: the generalised Jensen-Shannon divergence from a teacher, summed over the vocabulary."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Interval
from jaxtyping import Array, Float

from dovetail.arrays import full_precision


def jensen_shannon(
    logits: Float[Array, "*batch vocab"],
    teacher_logits: Float[Array, "*batch teacher_vocab"],
    *,
    beta: Annotated[float, Interval(ge=0, le=1)] = 0.5,
) -> Float[Array, "*batch"]:
    """The divergence of the next-token distribution π from the teacher's π_T, between forward and reverse KL.

        D_β(π_T || π) = β·KL(π_T || m) + (1-β)·KL(π || m),  m = β·π_T + (1-β)·π,  0 < β < 1
        D_0 = KL(π_T || π),  D_1 = KL(π || π_T)

    Agarwal et al. 2024, *On-policy distillation of language models*, section 2. The formula for 0 < β < 1 tends to zero
    at both ends, where D_β/β and D_β/(1-β) tend to the two KL divergences. As in TRL, β = 0 and β = 1 stand for exactly
    these divergences, so that D is discontinuous there: for β close to 0 or 1 it is small, and needs a larger
    coefficient.

    Computed in the forward pass: the logits of both models exist for one chunk of positions at a time.

    Args:
        logits: of the student, in float32, divided by the sampling temperature; differentiable.
        teacher_logits: of the model role `teacher` at the same positions, divided by the same temperature.
        beta: β, the teacher's share of the mixture; values near 0 are mode-covering, values near 1 mode-seeking.

    Returns:
        The divergence in nats at every position, non-negative.

    Departures:
        If the two models have different numbers of logits, as models of one family with different padding do, only the
        common ones are compared, and each distribution is normalised over them: the others are padding.

    >>> student, teacher = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.25, 0.75]))
    >>> [round(jensen_shannon(student, teacher, beta=beta).item(), 4) for beta in (0.0, 0.5, 1.0)]
    [0.1308, 0.0338, 0.1438]
    """
    common = min(logits.shape[-1], teacher_logits.shape[-1])
    student, teacher = (jax.nn.log_softmax(full_precision(x[..., :common]), axis=-1) for x in (logits, teacher_logits))
    b = jnp.asarray(beta, student.dtype)
    # for β = 0 or 1 the mixture is one of the two, whose own term is exactly zero; the other's weight is set to one
    mixture = jnp.logaddexp(jnp.log(b) + teacher, jnp.log1p(-b) + student)
    of_teacher, of_student = jnp.where(b == 0, 1.0, b), jnp.where(b == 1, 1.0, 1.0 - b)
    terms = of_teacher * jnp.exp(teacher) * (teacher - mixture) + of_student * jnp.exp(student) * (student - mixture)
    return jnp.sum(terms, axis=-1)

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

    Agarwal et al. 2024, *On-policy distillation of language models*, section 2. By its formula D_β vanishes at both
    ends, and D_β/β and D_β/(1-β) tend to the two KL divergences there; β = 0 and β = 1 stand for these divergences
    themselves, exactly, as in TRL. So D is not continuous there: near an end it is small and wants a larger
    coefficient.

    A quantity of the forward pass: both models' logits meet in chunks of positions, and neither is kept.

    Args:
        logits: of the student, in float32, divided by the sampling temperature; differentiable.
        teacher_logits: of the model role `teacher` at the same positions, divided by the same temperature.
        beta: β, the teacher's share of the mixture: 0 covers all that the teacher does, 1 seeks what it does most.

    Returns:
        Nats at every position; zero or above.

    Departures:
        Where the two models have different numbers of logits, as folders of one family that are padded differently,
        those that both have are compared, each distribution normalised over them: what one has beyond is padding.

    >>> student, teacher = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.25, 0.75]))
    >>> [round(jensen_shannon(student, teacher, beta=beta).item(), 4) for beta in (0.0, 0.5, 1.0)]
    [0.1308, 0.0338, 0.1438]
    """
    common = min(logits.shape[-1], teacher_logits.shape[-1])
    student, teacher = (jax.nn.log_softmax(full_precision(x[..., :common]), axis=-1) for x in (logits, teacher_logits))
    b = jnp.asarray(beta, student.dtype)
    # at an end the mixture is one of the two, whose own term is exactly zero, and the other is taken whole
    mixture = jnp.logaddexp(jnp.log(b) + teacher, jnp.log1p(-b) + student)
    of_teacher, of_student = jnp.where(b == 0, 1.0, b), jnp.where(b == 1, 1.0, 1.0 - b)
    terms = of_teacher * jnp.exp(teacher) * (teacher - mixture) + of_student * jnp.exp(student) * (student - mixture)
    return jnp.sum(terms, axis=-1)

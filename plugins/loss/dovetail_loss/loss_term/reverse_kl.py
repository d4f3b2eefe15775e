"""Loss term `reverse_kl`: on-policy distillation by the policy gradient of the divergence from a teacher."""

from __future__ import annotations

import jax
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio, masked
from dovetail.registry import declares


@declares(surrogate=True)
def reverse_kl(
    logps: Float[Array, "seq token"],
    teacher_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
) -> Float[Array, "seq token"]:
    """The divergence KL(π || π_T) from a teacher, token by token, on the student's own samples.

        x_it = log π(y_it|s_it) - log π_T(y_it|s_it),  y_it ~ π
        L_it = sg[x_it] + sg[x_it]·( log π - sg[log π] )

    with sg the stop-gradient. *The value* is x, an unbiased estimate of the divergence at the token's state, in nats;
    its variance is high, so that it is often negative. *The gradient* is x·∇log π, the score function with the
    advantage -x, an unbiased estimate of the divergence's gradient at that state. A token's effect on later states is
    ignored, as with a discount of zero. It is not the gradient of the value, which is zero in expectation.

    Lu et al. 2025, *On-policy distillation* (Thinking Machines Lab), and, for the whole completion's divergence, Gu et
    al. 2024, *MiniLLM*, equation 2. Against a reference in place of a teacher it is the KL estimator `k1_plus`.

    The teacher is a model role, `roles.teacher = 'frozen'`, and scores the completions once per collection. In further
    updates on the same completions the expectation is still over the policy that sampled, which is not corrected for
    here: use a single update per collection, or `gkd`, whose gradient is exact.

    Args:
        logps: log π of the student, in nats, differentiable.
        teacher_logps: log π_T, in nats, at the same temperature.
        mask: policy tokens; the loss is zero elsewhere.

    Returns:
        The loss per token, in nats.

    >>> import jax.numpy as jnp
    >>> student, teacher = jnp.array([[-1.0, -3.0]]), jnp.array([[-1.5, -1.0]])
    >>> reverse_kl(student, teacher, jnp.ones((1, 2), bool)).tolist()
    [[0.5, -2.0]]
    >>> jax.grad(lambda x: reverse_kl(x, teacher, jnp.ones((1, 2), bool)).sum())(student).tolist()
    [[0.5, -2.0]]
    """
    x = jax.lax.stop_gradient(log_ratio(logps, teacher_logps, mask))
    own = masked(logps, mask)
    return x + x * (own - jax.lax.stop_gradient(own))

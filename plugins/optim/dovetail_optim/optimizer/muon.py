"""Optimizer `muon`."""

from __future__ import annotations

from typing import Annotated, Any

import jax
import optax
from annotated_types import Ge, Gt, Interval
from jaxtyping import Array, Float
from optax import contrib

from dovetail_optim.optimizer._parts import Decay, HalfPrecision, in_parts, is_hidden_matrix
from dovetail_optim.optimizer.adamw import adamw


def muon(
    learning_rate: Float[Array, ""],
    *,
    beta: Annotated[float, Interval(ge=0, lt=1)] = 0.95,
    ns_steps: Annotated[int, Ge(1)] = 5,
    consistent_rms: Annotated[float, Gt(0)] | None = 0.2,
    b1: Annotated[float, Interval(ge=0, lt=1)] = 0.9,
    b2: Annotated[float, Interval(ge=0, lt=1)] = 0.999,
    eps: Annotated[float, Ge(0)] = 1e-8,
    weight_decay: Annotated[float, Ge(0)] = 0.0,
    decay: Decay = "matrices",
    mu_dtype: HalfPrecision | None = None,
) -> optax.GradientTransformation:
    """Momentum orthogonalised by Newton-Schulz iterations for hidden matrices; `adamw` for all other parameters.

    m ← βm + (1-β)g,  U·S·Vᵀ = βm̂ + (1-β)ĝ,  θ ← θ - lr·(s·U·Vᵀ + λθ), where U·Vᵀ is approximated by steps of
    a quintic in the matrix, and s = 0.2·√max(rows, columns) makes the step as long as Adam's.
    Jordan et al. 2024, *Muon: an optimizer for hidden layers in neural networks* (kellerjordan.github.io/posts/muon);
    s as in Liu et al. 2025, *Muon is scalable for LLM training* (arXiv:2502.16982), equation 4; optax's implementation.

    Embeddings, the projection to logits, norms and biases go to `adamw`, with the same lr; the factors of an adapter
    are matrices. An array with more than two axes is a stack of matrices, its last two axes.

    Args:
        learning_rate: lr of this step, of both parts.
        beta: β, decay of the momentum, which is Nesterov's.
        ns_steps: number of Newton-Schulz iterations; after 5 the singular values lie between about 0.7 and 1.2.
        consistent_rms: the root mean square of s·U·Vᵀ; None for s = √max(1, columns/rows) as in the first paper, which
            needs a different learning rate.
        b1: as in `adamw`.
        b2: as in `adamw`.
        eps: as in `adamw`; also added to the norm by which a matrix is divided before the iterations.
        weight_decay: λ, in both parts.
        decay: the parameters that decay, 'matrices' or 'all', as for `adamw`.
        mu_dtype: the dtype of m; None for that of the parameters. 'bfloat16' halves the state in float32.

    >>> import jax.numpy as jnp
    >>> params = {"kernel": 3.0 * jnp.eye(4), "bias": jnp.ones(4)}
    >>> state = muon(1e-3).init(params)
    >>> sorted(state.others[0].mu)
    ['bias']
    """

    def dimensions(matrices: Any) -> Any:
        return jax.tree.map(lambda _: contrib.MuonDimensionNumbers(-2, -1), matrices)

    orthogonal = optax.chain(
        contrib.scale_by_muon(
            beta=beta, ns_steps=ns_steps, eps=eps, mu_dtype=mu_dtype, weight_dimension_numbers=dimensions
        ),
        optax.stateless(lambda matrices, _: jax.tree.map(lambda x: _size(x.shape, consistent_rms) * x, matrices)),
        optax.add_decayed_weights(weight_decay),
        optax.scale_by_learning_rate(learning_rate),
    )
    rest = adamw(learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay, decay=decay, mu_dtype=mu_dtype)
    return in_parts(is_hidden_matrix, orthogonal, rest)


def _size(shape: tuple[int, ...], consistent_rms: float | None) -> Any:
    """Return s, the factor of a matrix with orthonormal rows or columns."""
    rows, columns = shape[-2:]
    if consistent_rms is None:
        return max(1.0, columns / rows) ** 0.5
    return consistent_rms * max(rows, columns) ** 0.5

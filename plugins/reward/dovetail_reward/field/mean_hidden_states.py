"""Field `mean_hidden_states`: the model's representation of a completion as a single vector."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked


def mean_hidden_states(
    hidden_states: Float[Array, "seq token width"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq width"]:
    """The mean of a completion's hidden states, in float32.

        h̄_i = (1/|y_i|)·∑_t h_it

    over its policy tokens, with h_it the state after the final norm from which token t is predicted. Prefixes choose
    the model and the text, as for every field of a forward pass: `old_mean_hidden_states` is computed by the policy at
    collection, `ref_mean_hidden_states` by the reference, and `answer_mean_hidden_states` by the policy at collection
    on the task's answer.

    Args:
        hidden_states: h.
        mask: policy tokens; a row without any gets zeros.

    >>> mean_hidden_states(jnp.array([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]]), jnp.array([[True, True, False]])).tolist()
    [[2.0, 3.0]]
    """
    states = masked(hidden_states, mask[..., None])
    lengths = jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True, dtype=states.dtype), 1.0)
    return jnp.sum(states, axis=1) / lengths

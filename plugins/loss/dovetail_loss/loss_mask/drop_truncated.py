"""Loss mask `drop_truncated`: exclude completions that hit the length limit."""

from __future__ import annotations

from jaxtyping import Array, Bool


def drop_truncated(
    truncated: Bool[Array, "seq"], mask: Bool[Array, "seq token"]
) -> tuple[Bool[Array, "seq token"], Bool[Array, "seq token"]]:
    """Overlong filtering: exclude completions that hit the length limit without an EOS.

        kept_it = m_it if completion i ended by itself, else false

    A truncated completion may have been on the right track, but its low score would teach the policy to reason for less
    long. Yu et al. 2025, *DAPO*, section 3.4, overlong filtering; TRL's `mask_truncated_completions`.

    Args:
        truncated: true where the limit was hit without an EOS.
        mask: policy tokens.

    Returns:
        The mask without truncated completions, both as weights and as the mask to keep: they do not count in lengths,
        in KL and entropy terms, or in the critic's loss. They do count in the baseline of their group, as in both
        sources; a reward that abstains on them (None) excludes them from that too.

    >>> import jax.numpy as jnp
    >>> drop_truncated(jnp.array([True, False]), jnp.ones((2, 1), bool))[1].tolist()
    [[False], [True]]
    """
    kept = mask & ~truncated[:, None]
    return kept, kept

"""The kinds that make up an algorithm: what is called, stage by stage, between sampling and the optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from dovetail.kinds.fields import FIELDS
from dovetail.kinds.kind import Kind

if TYPE_CHECKING:
    import jax

__all__ = ["KLController", "StatefulAdvantage"]

FIELD: Final = Kind(
    name="field",
    summary="fields -> one new field",
    reads="fields",
    setting="train.monitor",
    many=True,
    default=("entropy",),
    exclusive=True,
    reserved=frozenset(FIELDS),
)

GROUP_FILTER: Final = Kind(
    name="group_filter",
    summary="scores, group_ids -> which groups to keep",
    stage="filtered",
    reads="fields",
)

COMPLETION_FILTER: Final = Kind(
    name="completion_filter",
    summary="fields -> mask without the completions that are in no loss and no baseline",
    # before corrections, which may average over completions, and before estimators, whose baselines it is about
    stage="passes",
    many=True,
    default=(),
    reads="fields",
    writes=("mask",),
)

CORRECTION: Final = Kind(
    name="correction",
    summary="old_logps, rollout_logps, mask -> (is_weights, mask to keep)",
    stage="corrections",
    many=True,
    default=(),
    reads="fields",
    writes=("is_weights", "mask"),
)

REWARD_SHAPING: Final = Kind(
    name="reward_shaping",
    summary="token_rewards -> token_rewards",
    stage="token_rewards",
    many=True,
    default=(),
    reads="fields",
    writes=("token_rewards",),
)

ADVANTAGE: Final = Kind(
    name="advantage",
    summary="fields -> advantages, or (advantages, returns)",
    stage="advantages",
    default="grpo",
    reads="fields",
    writes=("advantages", "returns"),
    protocol="dovetail.kinds.algorithm:StatefulAdvantage",
)

LOSS_MASK: Final = Kind(
    name="loss_mask",
    summary="fields, advantages among them -> weights of tokens in the policy loss, and maybe which to keep",
    stage="loss_masks",
    many=True,
    default=(),
    reads="fields",
    writes=("loss_weights", "mask"),
)

LOSS_AGG: Final = Kind(
    name="loss_agg",
    summary="mask (and group_ids, ...) -> per-token weights of the whole mini-batch",
    stage="mini_batch",
    default="token_mean",
    reads="fields",
    writes=("weights",),
)

POLICY_LOSS: Final = Kind(
    name="policy_loss",
    summary="fields -> per-token loss",
    stage="loss_terms",
    default="grpo",
    reads="fields",
    term=True,
    corrected=True,
)

KL: Final = Kind(
    name="kl",
    summary="logps, ref_logps -> per-token estimate of the divergence from the reference",
    stage="loss_terms",
    default="k3",
    reads="fields",
    term=True,
    coefficient="train.kl_coef",
    moved={"train.kl_in": {"reward": "token_rewards"}},
)

LOSS_TERM: Final = Kind(
    name="loss_term",
    summary="fields -> per-token loss, added to the policy loss with a coefficient",
    stage="loss_terms",
    setting="train.loss_terms",
    many=True,
    default=(),
    reads="fields",
    term=True,
    parameters={"coef": 1.0, "scheduled": False},
)

VALUE_LOSS: Final = Kind(
    name="value_loss",
    summary="fields -> per-token loss of the critic",
    reads="fields",
)

KL_CONTROLLER: Final = Kind(
    name="kl_controller",
    summary="observed KL -> coefficient, with state",
    stage="after_step",
    setting="train.kl_controller",
    default="fixed",
    protocol="dovetail.kinds.algorithm:KLController",
    scaffold="class",
)

ENTROPY_CONTROLLER: Final = Kind(
    name="entropy_controller",
    summary="observed entropy -> coefficient of the entropy bonus, with state",
    stage="after_step",
    setting="train.entropy_controller",
    default="fixed",
    protocol="dovetail.kinds.algorithm:KLController",
    scaffold="class",
)

SCHEDULE: Final = Kind(
    name="schedule",
    summary="step, total_steps -> coefficient",
    setting="train.schedule",
)

KINDS: Final = (
    FIELD,
    GROUP_FILTER,
    COMPLETION_FILTER,
    CORRECTION,
    REWARD_SHAPING,
    ADVANTAGE,
    LOSS_MASK,
    LOSS_AGG,
    POLICY_LOSS,
    KL,
    LOSS_TERM,
    VALUE_LOSS,
    KL_CONTROLLER,
    ENTROPY_CONTROLLER,
    SCHEDULE,
)


class StatefulAdvantage(Protocol):
    """Kind `advantage`, of an estimator that remembers: a baseline over the whole run, say. Saved in checkpoints.

    A class whose `__call__` reads the field `state` among others. `update` reads the same fields, after the advantages
    are estimated. Both are pure, as they are traced, and see rows with an empty mask that must count for nothing.
    """

    def init(self, roles: int) -> Any:
        """Return the first state, a pytree of arrays; `roles` is how many values `role_ids` has."""
        ...

    @property
    def update(self) -> Callable[..., Any]:
        """Return the next state, of the same shapes and types."""
        ...


class KLController(Protocol):
    """Kind `kl_controller`: a coefficient with state, saved in checkpoints. Pure, so that it can be traced."""

    def init(self, coef: float) -> dict[str, jax.Array]:
        """Return the first state."""
        ...

    def coef(self, state: dict[str, jax.Array]) -> jax.Array:
        """Return the coefficient to use now."""
        ...

    def update(self, state: dict[str, jax.Array], kl: jax.Array, samples: jax.Array) -> dict[str, jax.Array]:
        """Return the next state, given the mean KL per token observed over `samples` completions."""
        ...

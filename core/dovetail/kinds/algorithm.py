"""The kinds that make up an algorithm: the components called, stage by stage, between sampling and the optimiser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from dovetail.kinds.fields import FIELDS
from dovetail.kinds.kind import Kind

if TYPE_CHECKING:
    import jax
    from jaxtyping import Array, Float, Int

__all__ = ["EntropyController", "KLController", "Schedule", "StatefulAdvantage"]

FIELD: Final = Kind(
    name="field",
    summary="fields, or a forward pass -> one new field, with a number for each token or for each completion",
    reads="fields",
    setting="train.monitor",
    many=True,
    default=("entropy",),
    exclusive=True,
    reserved=frozenset(FIELDS),
)

GROUP_FILTER: Final = Kind(
    name="group_filter",
    summary="scores, group_ids -> which groups to keep; a run has one at most",
    stage="filtered",
    reads="fields",
)

COMPLETION_FILTER: Final = Kind(
    name="completion_filter",
    summary="fields -> mask that excludes some completions from every loss and every baseline",
    # before corrections, which may average over completions, and before estimators, whose baselines must not see them
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
    summary="fields, including advantages -> token weights for the policy loss, and optionally the mask to keep",
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
    summary="logps, ref_logps -> per-token estimate of the divergence from the reference, anything outside the mask",
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

VALUE_LOSS: Final = Kind(name="value_loss", summary="fields -> per-token loss of the critic", reads="fields")

KL_CONTROLLER: Final = Kind(
    name="kl_controller",
    summary="observed KL -> KL coefficient, with state",
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
    protocol="dovetail.kinds.algorithm:EntropyController",
    scaffold="class",
)

SCHEDULE: Final = Kind(
    name="schedule",
    summary="step, total_steps -> coefficient",
    offers=("step", "total_steps"),
    setting="train.schedule",
    protocol="dovetail.kinds.algorithm:Schedule",
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
    """Kind `advantage`, for an estimator with state, such as a baseline over the whole run. Checkpoints include it.

    A class, `@attrs.frozen(kw_only=True)`, whose `__call__` reads the field `state` among others. `update` reads the
    same fields, and is called after the advantages have been estimated. Both are traced, so they must be pure. Rows
    with an empty mask must not affect the result of either; a batch of such rows alone leaves the state as it is,
    clocks included.
    """

    def init(self, roles: int) -> Any:
        """Return the initial state, a pytree of arrays.

        `roles` is the number of values that `role_ids` can take: those of the dataset column `train.role_column`. With
        a column that has another value for each prompt, such as an id, a state over roles is one over prompts.
        """
        ...

    def update(self, *fields: Any) -> Any:
        """Return the next state, with the same shapes and dtypes.

        Args:
            fields: what `__call__` reads, under the same names and in the same order; they are passed by name.
        """
        ...


class KLController(Protocol):
    """Kind `kl_controller`: a coefficient with state, which checkpoints include.

    It begins at the coefficient of the config, c = `train.kl_coef`: `coef(init(c))` is c. It stays finite and is never
    negative, however long the same is observed: a rule that multiplies it has a bound. The methods are traced, so they
    must be pure. `update` is called by position.
    """

    def init(self, coef: float) -> dict[str, jax.Array]:
        """Return the initial state, given the coefficient that the config sets."""
        ...

    def coef(self, state: dict[str, jax.Array]) -> jax.Array:
        """Return the current coefficient, a scalar."""
        ...

    def update(self, state: dict[str, jax.Array], kl: jax.Array, samples: jax.Array) -> dict[str, jax.Array]:
        """Return the next state.

        Args:
            state: the current one.
            kl: the mean of the KL estimate per policy token, in nats; 0 if there was none.
            samples: the number of completions it was observed on; 0 if there was none.
        """
        ...


class EntropyController(Protocol):
    """Kind `entropy_controller`: a coefficient with state, which checkpoints include.

    It begins at the coefficient of the config, c = `train.entropy_coef`: `coef(init(c))` is c. It stays finite and is
    never negative, however long the same is observed: a rule that multiplies it has a bound. The methods are traced, so
    they must be pure. `update` is called by position.
    """

    def init(self, coef: float) -> dict[str, jax.Array]:
        """Return the initial state, given the coefficient that the config sets."""
        ...

    def coef(self, state: dict[str, jax.Array]) -> jax.Array:
        """Return the current coefficient, a scalar."""
        ...

    def update(self, state: dict[str, jax.Array], entropy: jax.Array, samples: jax.Array) -> dict[str, jax.Array]:
        """Return the next state.

        Args:
            state: the current one.
            entropy: its mean per policy token, in nats; 0 if there was none.
            samples: the number of completions it was observed on; 0 if there was none.
        """
        ...


class Schedule(Protocol):
    """Kinds `schedule` and `lr_schedule`: a number for each step.

    It is traced, so it must not branch on an argument with `if`. It may leave out an argument that it does not read.
    """

    def __call__(self, step: Int[Array, ""], total_steps: Int[Array, ""]) -> Float[Array, ""]:
        """Return the coefficient of a step, or the factor of the learning rate.

        Args:
            step: the number of steps done, from 0. A run that goes on is past the last one.
            total_steps: the number of steps of the whole run.
        """
        ...

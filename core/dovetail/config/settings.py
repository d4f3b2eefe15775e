"""The engine's own settings: one attrs class per section of a gin file.

`train.steps = 100` sets `Train.steps`. A field made with `chosen(kind)` holds the name of a component of that kind.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import attrs
from attrs.validators import and_, ge, gt, le, lt, optional


def chosen(kind: str, default: Any = attrs.NOTHING, *, scope: str = "") -> Any:
    """Declare a field that holds a component's name, a tuple of names, or None.

    `scope` is the gin scope under which its parameters may be set apart, as in `critic/optimizer.adamw.b2 = 0.95`.
    """
    return attrs.field(default=default, metadata={"kind": kind, "scope": scope})


@attrs.frozen(kw_only=True)
class Train:
    """The training loop: which components make up the algorithm, and the sizes of a step."""

    # what is trained, on what
    task: str = chosen("task", "arithmetic")
    tokenizer: str = chosen("tokenizer", "sentencepiece")
    model: str = chosen("model", "decoder")
    rollout: str = chosen("rollout", "vanilla")
    rewards: tuple[str, ...] = chosen("reward", ("check_answer",))
    reward_manager: str = chosen("reward_manager", "weighted_sum")
    reward_shaping: str | None = chosen("reward_shaping", None)

    group_filter: str | None = chosen("group_filter", None)
    refill_rounds: int = attrs.field(default=3, validator=ge(0))

    # the algorithm
    advantage: str = chosen("advantage", "grpo")
    policy_loss: str = chosen("policy_loss", "grpo")
    loss_agg: str = chosen("loss_agg", "token_mean")
    correction: str | None = chosen("correction", None)
    kl: str = chosen("kl", "k3")
    kl_coef: float = attrs.field(default=0.0, validator=ge(0))
    kl_in: Literal["loss", "reward"] = "loss"
    kl_controller: str = chosen("kl_controller", "fixed")
    entropy_coef: float = 0.0
    monitor: tuple[str, ...] = chosen("field", ("entropy",))

    # the sizes of a step
    steps: int = attrs.field(default=100, validator=ge(0))
    prompts: int = attrs.field(default=16, validator=ge(1))
    group_size: int = attrs.field(default=8, validator=ge(1))
    epochs: int = attrs.field(default=1, validator=ge(1))
    mini_batch_size: int | None = attrs.field(default=None, validator=optional(ge(1)))
    micro_batch_size: int | None = attrs.field(default=None, validator=optional(ge(1)))
    max_prompt_tokens: int = attrs.field(default=64, validator=ge(1))
    long_prompts: Literal["error", "truncate", "filter"] = "error"

    # the optimiser
    optimizer: str = chosen("optimizer", "adamw")
    lr: float = attrs.field(default=1e-4, validator=ge(0))
    lr_schedule: str = chosen("lr_schedule", "warmup_cosine")
    max_grad_norm: float = attrs.field(default=1.0, validator=gt(0))


@attrs.frozen(kw_only=True)
class Critic:
    """The critic, trained only when a chosen component reads `values`."""

    model: str = chosen("model", "decoder", scope="critic")
    value_loss: str = chosen("value_loss", "ppo", scope="critic")
    loss_agg: str = chosen("loss_agg", "token_mean", scope="critic")
    optimizer: str = chosen("optimizer", "adamw", scope="critic")
    lr: float = attrs.field(default=1e-4, validator=ge(0))
    lr_schedule: str = chosen("lr_schedule", "warmup_cosine", scope="critic")
    max_grad_norm: float = attrs.field(default=1.0, validator=gt(0))
    init_from_policy: bool = True
    warmup_steps: int = attrs.field(default=0, validator=ge(0))


@attrs.frozen(kw_only=True)
class Sft:
    """The supervised warm start on a task's demonstrations; no steps, no warm start."""

    steps: int = attrs.field(default=0, validator=ge(0))
    batch_size: int = attrs.field(default=64, validator=ge(1))
    optimizer: str = chosen("optimizer", "adamw", scope="sft")
    lr: float = attrs.field(default=1e-3, validator=ge(0))
    lr_schedule: str = chosen("lr_schedule", "warmup_cosine", scope="sft")
    max_grad_norm: float = attrs.field(default=1.0, validator=gt(0))
    micro_batch_size: int | None = attrs.field(default=None, validator=optional(ge(1)))
    long_completions: Literal["error", "truncate", "filter"] = "error"


@attrs.frozen(kw_only=True)
class Sampling:
    """How completions are sampled; `temperature` 0 is greedy."""

    temperature: float = attrs.field(default=1.0, validator=and_(ge(0), lt(math.inf)))
    top_k: int | None = attrs.field(default=None, validator=optional(ge(1)))
    top_p: float | None = attrs.field(default=None, validator=optional(and_(gt(0), le(1))))
    max_tokens: int = attrs.field(default=64, validator=ge(1))


@attrs.frozen(kw_only=True)
class Eval:
    """Evaluation on the task's `eval` split, before training, every `every` steps, and at the end."""

    task: str | None = chosen("task", None, scope="eval")
    every: int = attrs.field(default=20, validator=ge(1))
    examples: int | None = attrs.field(default=256, validator=optional(ge(1)))
    batch_size: int = attrs.field(default=128, validator=ge(1))
    samples: int = attrs.field(default=0, validator=ge(0))
    pass_at: tuple[int, ...] = (1,)
    temperature: float = attrs.field(default=1.0, validator=ge(0))
    success: str | None = chosen("reward", None)
    success_at: float = 1.0
    saved_samples: int = attrs.field(default=8, validator=ge(0))


@attrs.frozen(kw_only=True)
class Run:
    """How and where a run happens; not part of the config id."""

    seed: int = 0
    folder: str | None = None
    checkpoint_every: int = attrs.field(default=20, validator=ge(1))
    keep_checkpoints: int = attrs.field(default=2, validator=ge(1))
    sinks: tuple[str, ...] = chosen("sink", ("console", "tensorboard"))


SECTIONS: dict[str, type[Any]] = {
    "train": Train,
    "critic": Critic,
    "sft": Sft,
    "sampling": Sampling,
    "eval": Eval,
    "run": Run,
}

"""The engine's own settings: one attrs class for each section of a gin file.

`train.steps = 100` sets `Train.steps`. A field made with `chosen(kind)` holds the name of a component of that kind.
Plugins open sections of their own with the hook `dovetail_sections`.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import attrs
from annotated_types import Ge, Gt, Interval

from dovetail.errors import ConfigError
from dovetail.ranges import in_range


def chosen(kind: str, default: Any = attrs.NOTHING, *, scope: str = "") -> Any:
    """Declare a field that holds a component's name, a tuple of names, or None.

    Args:
        kind: the kind of the components.
        default: the default of the setting.
        scope: the gin scope in which their parameters can be set separately, as in `critic/optimizer.adamw.b2 = 0.95`.
    """
    return attrs.field(default=default, metadata={"kind": kind, "scope": scope})


@attrs.frozen(kw_only=True)
class Train:
    """The training loop: which components make up the algorithm, and the sizes of a step."""

    # the settings of the kinds, `train.policy_loss` and so on, are added from the registry
    answer_column: str = "answer"
    role_column: str = "role"
    refill_rounds: Annotated[int, Ge(0)] = attrs.field(default=3, validator=in_range)
    oversample: Annotated[int, Ge(0)] | None = attrs.field(default=None, validator=in_range)
    kl_coef: Annotated[float, Ge(0)] = attrs.field(default=0.0, validator=in_range)
    kl_in: Literal["loss", "reward"] = "loss"
    entropy_coef: float = 0.0

    # the sizes of a step
    steps: Annotated[int, Ge(0)] = attrs.field(default=100, validator=in_range)
    staleness: Annotated[int, Ge(0)] = attrs.field(default=0, validator=in_range)
    prompts: Annotated[int, Ge(1)] = attrs.field(default=16, validator=in_range)
    group_size: Annotated[int, Ge(1)] = attrs.field(default=8, validator=in_range)
    epochs: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    mini_batch_size: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    micro_batch_size: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    length_buckets: Annotated[int, Interval(ge=1, le=32)] = attrs.field(default=1, validator=in_range)
    packing: bool = False
    max_prompt_tokens: Annotated[int, Ge(1)] = attrs.field(default=64, validator=in_range)
    long_prompts: Literal["error", "truncate", "filter"] = "error"

    # the optimiser
    lr: Annotated[float, Interval(ge=0, lt=math.inf)] = attrs.field(default=1e-4, validator=in_range)
    max_grad_norm: Annotated[float, Gt(0)] = attrs.field(default=1.0, validator=in_range)

    @property
    def prompts_of_round(self) -> int:
        """The number of prompts that are sampled at a time."""
        return self.prompts + (self.oversample or 0)


@attrs.frozen(kw_only=True)
class Critic:
    """The critic, which is trained only if a chosen component reads `values`."""

    model: str = chosen("model", "decoder", scope="critic")
    adapter: str | None = chosen("adapter", None, scope="critic")
    value_loss: str = chosen("value_loss", "ppo", scope="critic")
    loss_agg: str = chosen("loss_agg", "token_mean", scope="critic")
    optimizer: str = chosen("optimizer", "adamw", scope="critic")
    lr: Annotated[float, Interval(ge=0, lt=math.inf)] = attrs.field(default=1e-4, validator=in_range)
    lr_schedule: str = chosen("lr_schedule", "warmup_cosine", scope="critic")
    max_grad_norm: Annotated[float, Gt(0)] = attrs.field(default=1.0, validator=in_range)
    init_from_policy: bool = True
    warmup_steps: Annotated[int, Ge(0)] = attrs.field(default=0, validator=in_range)


@attrs.frozen(kw_only=True)
class Sft:
    """The supervised warm start on a task's demonstrations; skipped if `steps` is 0."""

    steps: Annotated[int, Ge(0)] = attrs.field(default=0, validator=in_range)
    batch_size: Annotated[int, Ge(1)] = attrs.field(default=64, validator=in_range)
    optimizer: str = chosen("optimizer", "adamw", scope="sft")
    lr: Annotated[float, Interval(ge=0, lt=math.inf)] = attrs.field(default=1e-3, validator=in_range)
    lr_schedule: str = chosen("lr_schedule", "warmup_cosine", scope="sft")
    max_grad_norm: Annotated[float, Gt(0)] = attrs.field(default=1.0, validator=in_range)
    micro_batch_size: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    long_completions: Literal["error", "truncate", "filter"] = "error"


def _no_empty_string(_: Any, attribute: attrs.Attribute[Any], strings: tuple[str, ...]) -> None:
    if "" in strings:
        raise ConfigError(f"sampling.{attribute.name} = {strings!r} has an empty string, which every text contains")


@attrs.frozen(kw_only=True)
class Sampling:
    """How completions are sampled; `temperature` 0 is greedy. A preset provides the values that are not set here."""

    preset: str | None = chosen("sampling_preset", None)
    temperature: Annotated[float, Interval(ge=0, lt=math.inf)] = attrs.field(default=1.0, validator=in_range)
    top_k: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    top_p: Annotated[float, Interval(gt=0, le=1)] | None = attrs.field(default=None, validator=in_range)
    min_p: Annotated[float, Interval(ge=0, le=1)] | None = attrs.field(default=None, validator=in_range)
    max_tokens: Annotated[int, Ge(1)] = attrs.field(default=64, validator=in_range)
    stop: tuple[str, ...] = attrs.field(default=(), validator=_no_empty_string)
    logps: Literal["support", "vocabulary"] = "support"


@attrs.frozen(kw_only=True)
class Eval:
    """Evaluation on the task's `eval` split, before training, every `every` steps, and at the end.

    With `every = None` there is no evaluation. Each prompt is completed greedily, and by `samples` further completions
    drawn with the preset, temperature and cuts set here.
    """

    task: str | None = chosen("task", None, scope="eval")
    every: Annotated[int, Ge(1)] | None = attrs.field(default=20, validator=in_range)
    examples: Annotated[int, Ge(1)] | None = attrs.field(default=256, validator=in_range)
    batch_size: Annotated[int, Ge(1)] = attrs.field(default=128, validator=in_range)
    samples: Annotated[int, Ge(0)] = attrs.field(default=0, validator=in_range)
    pass_at: tuple[int, ...] = (1,)
    majority_at: tuple[int, ...] = ()
    answer: str | None = chosen("answer", None)
    preset: str | None = chosen("sampling_preset", None, scope="eval")
    temperature: Annotated[float, Interval(ge=0, lt=math.inf)] = attrs.field(default=1.0, validator=in_range)
    top_k: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    top_p: Annotated[float, Interval(gt=0, le=1)] | None = attrs.field(default=None, validator=in_range)
    success: str | None = chosen("reward", None)
    success_at: float = 1.0
    partial: str | None = chosen("reward", None)
    format: str | None = chosen("reward", None)
    saved_samples: Annotated[int, Ge(0)] = attrs.field(default=8, validator=in_range)


@attrs.frozen(kw_only=True)
class Run:
    """How and where a run happens; not part of the config id."""

    seed: int = 0
    folder: str | None = None
    checkpoint_every: Annotated[int, Ge(1)] = attrs.field(default=20, validator=in_range)
    keep_checkpoints: Annotated[int, Ge(1)] = attrs.field(default=2, validator=in_range)
    keep_messages: bool = False
    sinks: tuple[str, ...] = chosen("sink", ("console", "tensorboard"))


@attrs.frozen(kw_only=True)
class Mesh:
    """The devices of the policy being trained; not part of the config id, since they affect only rounding.

    There are `fsdp` times `tp` devices, from number `first` on. The rows of a batch are sharded over `fsdp` devices.
    Parameters are sharded over `fsdp` by their `width`, and over `tp` by heads, feed-forward units and vocabulary.
    """

    fsdp: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    tp: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    first: Annotated[int, Ge(0)] = attrs.field(default=0, validator=in_range)

    @property
    def span(self) -> range:
        """The numbers of the devices."""
        return range(self.first, self.first + self.fsdp * self.tp)

    @property
    def numbers(self) -> str:
        """The same in words."""
        return str(self.first) if len(self.span) == 1 else f"{self.first} to {self.span[-1]}"


@attrs.frozen(kw_only=True)
class RoleMesh:
    """The devices of a role that has some of its own, `reference/mesh.first = 4`; None is what `mesh` says."""

    fsdp: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    tp: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    first: Annotated[int, Ge(0)] | None = attrs.field(default=None, validator=in_range)


@attrs.frozen(kw_only=True)
class Memory:
    """Where data that only part of a step needs is kept the rest of the time; not part of the config id.

    `limit` is the memory that a step may use on each device, in GiB; None means nine tenths of the device's memory.
    `sizing` chooses how a step is computed, so that it fits.
    """

    reference: Literal["device", "host"] = "device"
    optimizer: Literal["device", "host"] = "device"
    limit: Annotated[float, Gt(0)] | None = attrs.field(default=None, validator=in_range)
    sizing: str = chosen("sizing", "fit")


@attrs.frozen(kw_only=True)
class RoleModel:
    """The section of the reference or of a model role that `roles` opens: the initial weights of the role.

    Without a model they are the policy's weights at the start of reinforcement learning.
    """

    model: str | None = chosen("model", None)
    adapter: str | None = chosen("adapter", None)

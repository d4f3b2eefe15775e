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
    """The training loop: which components make up the algorithm, and the sizes of a step.

    Attributes:
        answer_column: the task's column with the right answers, for components that read the log-probability of these.
        role_column: the task's column with the role that writes a completion, for components that read `role_ids`.
        refill_rounds: how often a step samples again, at most, for groups that `group_filter` has dropped (dynamic
            sampling).
        oversample: prompts sampled in addition to `prompts`, whose groups serve the next steps if they are not needed.
        kl_coef: coefficient of the KL penalty towards the reference model; 0 leaves the reference model out.
        kl_in: where the KL penalty goes: into the loss, or into the rewards.
        entropy_coef: coefficient of the entropy bonus.
        steps: training steps, each of which samples `prompts` x `group_size` completions and trains on them.
        staleness: batches by which sampling may be ahead of training: 0 is synchronous, 1 is one step off-policy.
        in_flight: whether completions that are being sampled go on under newer weights as soon as there are some. It
            needs `staleness`; what is sampled then depends on how fast sampling and training are.
        replay_choices: whether scoring and update use the choices that the model made while sampling, such as the
            experts of a mixture (routing replay), instead of making them again.
        prompts: prompts in a step (the batch size in prompts).
        group_size: completions sampled for each prompt (the number of generations).
        epochs: passes over a step's completions (PPO epochs, GRPO iterations).
        mini_batch_size: completions in one update of the optimiser; None takes all of a step.
        micro_batch_size: completions in one forward and backward pass, over all devices (gradient accumulation); None
            takes as many as fit into the memory. It does not change the result.
        length_buckets: lengths to which completions are padded in an update, at most; 1 pads all to the longest.
        packing: whether several completions share a row (remove padding).
        max_prompt_tokens: maximum length of a prompt, in tokens.
        long_prompts: what happens to longer prompts: refuse the run, keep their end, or leave them out.
        lr: peak learning rate of the policy.
        max_grad_norm: the global norm to which gradients are clipped.
    """

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
    in_flight: bool = False
    replay_choices: bool = False
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
    """The critic, which is trained only if a chosen component reads `values`.

    Attributes:
        init_from_policy: whether the critic begins with the policy's weights, if both are the same component, and
            neither's adapter stores them in other bits than the other's.
        lr: peak learning rate of the critic.
        max_grad_norm: the global norm to which its gradients are clipped.
        warmup_steps: steps at the beginning in which only the critic is trained.
    """

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
    """The supervised warm start on a task's demonstrations; skipped if `steps` is 0.

    Attributes:
        steps: steps of the warm start.
        batch_size: demonstrations in a step.
        lr: peak learning rate.
        max_grad_norm: the global norm to which gradients are clipped.
        micro_batch_size: demonstrations in one forward and backward pass (gradient accumulation); None takes as many
            as fit into the memory.
        long_completions: what happens to demonstrations that are longer than `max_tokens`.
        max_tokens: the length to which demonstrations are padded, with their end included; None takes that of sampling.
            Shorter rows cost less where demonstrations are shorter than completions may become.
    """

    steps: Annotated[int, Ge(0)] = attrs.field(default=0, validator=in_range)
    batch_size: Annotated[int, Ge(1)] = attrs.field(default=64, validator=in_range)
    optimizer: str = chosen("optimizer", "adamw", scope="sft")
    lr: Annotated[float, Interval(ge=0, lt=math.inf)] = attrs.field(default=1e-3, validator=in_range)
    lr_schedule: str = chosen("lr_schedule", "warmup_cosine", scope="sft")
    max_grad_norm: Annotated[float, Gt(0)] = attrs.field(default=1.0, validator=in_range)
    micro_batch_size: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    max_tokens: Annotated[int, Ge(2)] | None = attrs.field(default=None, validator=in_range)
    long_completions: Literal["error", "truncate", "filter"] = "error"


def _no_empty_string(_: Any, attribute: attrs.Attribute[Any], strings: tuple[str, ...]) -> None:
    if "" in strings:
        raise ConfigError(f"sampling.{attribute.name} = {strings!r} has an empty string, which every text contains")


@attrs.frozen(kw_only=True)
class Sampling:
    """How completions are sampled; `temperature` 0 is greedy. A preset provides the values that are not set here.

    Attributes:
        temperature: the softmax temperature; all log-probabilities are at this temperature.
        top_k: sample from the k most probable tokens only; None turns it off.
        top_p: sample from the most probable tokens with this probability together (nucleus); None turns it off.
        min_p: sample from tokens with at least this share of the highest probability; None turns it off.
        max_tokens: maximum length of a completion; in an episode, of all turns and observations together.
        stop: texts that end a completion.
        logps: whether the sampler's log-probabilities are over the tokens that the cuts leave, or the whole vocabulary.
    """

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

    Attributes:
        task: the task that is evaluated; None takes that of training.
        every: steps between evaluations; None turns evaluation off.
        at_start: whether one comes before training.
        examples: prompts in an evaluation, the first ones of the split; None takes all.
        batch_size: prompts completed at a time.
        samples: completions for each prompt beside the greedy one, for pass@k and maj@k.
        pass_at: the k of pass@k.
        majority_at: the k of maj@k, the majority vote.
        answer: finds the answers that vote.
        temperature: the temperature of these samples.
        top_k: as in `sampling`.
        top_p: as in `sampling`.
        success: the reward that says whether a completion succeeds (`eval/accuracy`); None takes the score.
        success_at: a completion succeeds if this reward is at least so high.
        partial: a reward that is more than 0 for what is nearly right (`eval/partial_accuracy`).
        format: a reward that is more than 0 for the right format (`eval/format_accuracy`).
        saved_samples: completions of each evaluation that are kept in `samples.jsonl`.
    """

    task: str | None = chosen("task", None, scope="eval")
    every: Annotated[int, Ge(1)] | None = attrs.field(default=20, validator=in_range)
    at_start: bool = True
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
    """How and where a run happens; not part of the config id.

    Attributes:
        seed: the seed of everything random.
        folder: the run folder; `--folder` overrides it. A relative path is meant from where the command is given.
        checkpoint_every: steps between checkpoints (save steps).
        keep_checkpoints: checkpoints to keep; older ones are removed.
        keep_best: a metric of the evaluations, such as `eval/accuracy`; the checkpoint with its greatest value is kept
            in addition to the newest ones, and `--checkpoint best` finds it. `eval.every` must be a multiple of
            `run.checkpoint_every`.
        sinks: where metrics go in addition to the run folder (`wandb`, `mlflow`, `tensorboard`, ...).
        keep_messages: whether everything that the trainer gets from the sampler is kept, for `dovetail replay`; None
            keeps it where nothing else can repeat the run, with `train.in_flight`.
    """

    seed: int = 0
    folder: str | None = None
    checkpoint_every: Annotated[int, Ge(1)] = attrs.field(default=20, validator=in_range)
    keep_checkpoints: Annotated[int, Ge(1)] = attrs.field(default=2, validator=in_range)
    keep_best: str | None = None
    keep_messages: bool | None = None
    sinks: tuple[str, ...] = chosen("sink", ("console", "tensorboard"))


@attrs.frozen(kw_only=True)
class Mesh:
    """The devices of the policy being trained; not part of the config id, since they affect only rounding.

    There are `fsdp` times `cp` times `tp` devices, from number `first` on. The rows of a batch are sharded over `fsdp`
    devices, and the tokens of each row over `cp`. Parameters are sharded over both together by their `width`, and over
    `tp` by heads, feed-forward units and vocabulary.

    Attributes:
        fsdp: devices over which parameters and the rows of a batch are sharded (data parallelism).
        cp: devices over which parameters and the tokens of each row are sharded (context parallelism).
        tp: devices over which heads, feed-forward units and vocabulary are sharded (tensor parallelism).
        first: the number of the first device.
    """

    fsdp: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    cp: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    tp: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    first: Annotated[int, Ge(0)] = attrs.field(default=0, validator=in_range)

    @property
    def span(self) -> range:
        """The numbers of the devices."""
        return range(self.first, self.first + math.prod(self.shape))

    @property
    def shape(self) -> tuple[int, int, int]:
        """The sizes of `dovetail.devices.mesh.AXES`."""
        return self.fsdp, self.cp, self.tp

    def product(self, name: str) -> str:
        """Return the product that is the number of devices in words; `name` is that of the section."""
        sizes = {"fsdp": self.fsdp, "cp": self.cp, "tp": self.tp}
        return " times ".join(f"{name}.{axis} = {size}" for axis, size in sizes.items())

    @property
    def numbers(self) -> str:
        """The same in words."""
        return str(self.first) if len(self.span) == 1 else f"{self.first} to {self.span[-1]}"


@attrs.frozen(kw_only=True)
class RoleMesh:
    """The devices of a role that has some of its own, `reference/mesh.first = 4`; None is what `mesh` says."""

    fsdp: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    cp: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    tp: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    first: Annotated[int, Ge(0)] | None = attrs.field(default=None, validator=in_range)


@attrs.frozen(kw_only=True)
class Memory:
    """Where data that only part of a step needs is kept the rest of the time; not part of the config id.

    `limit` is the memory that a step may use on each device, in GiB; None means nine tenths of the device's memory.
    `sizing` chooses how a step is computed, so that it fits.

    Attributes:
        reference: where the reference model's weights are kept (offloading).
        optimizer: where the optimiser's state is kept (offloading).
        limit: GiB of each device that a step may take.
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

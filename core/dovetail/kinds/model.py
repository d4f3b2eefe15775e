"""The kinds that models are made of, and how they are trained or follow."""

from __future__ import annotations

from typing import Final

from dovetail.kinds.kind import Kind

MODEL: Final = Kind(
    name="model",
    summary="architecture and loader",
    setting="train.model",
    default="decoder",
    protocol="dovetail.protocols:ModelMaker",
    scaffold="class",
)

ARCHITECTURE: Final = Kind(
    name="architecture",
    summary="config.json of a model folder -> what its decoder is",
)

ADAPTER: Final = Kind(
    name="adapter",
    summary="what is trained in place of a model's own parameters",
    setting="train.adapter",
    protocol="dovetail.protocols:Adapter",
    scaffold="class",
)

FOLLOWER: Final = Kind(
    name="follower",
    summary="how the weights of a model role that is not trained move: weights, policy, step -> weights",
    protocol="dovetail.protocols:Follower",
    scaffold="class",
)

OPTIMIZER: Final = Kind(
    name="optimizer",
    summary="learning rate -> optax gradient transformation",
    setting="train.optimizer",
    default="adamw",
)

LR_SCHEDULE: Final = Kind(
    name="lr_schedule",
    summary="step, total_steps -> factor of the learning rate",
    setting="train.lr_schedule",
    default="warmup_cosine",
)

KINDS: Final = (MODEL, ARCHITECTURE, ADAPTER, FOLLOWER, OPTIMIZER, LR_SCHEDULE)

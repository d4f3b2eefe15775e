"""Whether scoring and update repeat the choices that the model made while sampling (routing replay).

A mixture of experts is not continuous: rounding, or weights that are a few updates newer, may choose other experts at a
token, and the ratio of trainer and sampler then compares two different networks. With `train.replay_choices` the engine
records the choices, and every pass of the policy over the completions computes with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dovetail.errors import PlanError
from dovetail.plan.off_policy import check_engine

if TYPE_CHECKING:
    from dovetail.config import Config
    from dovetail.protocols import Completions

SETTING: Final = "train.replay_choices"

CHOICES: Final = ("choices", "prompt_choices")
"""The fields that hold the choices made while reading completions and prompts."""

KEEPS: Final = "keeps_choices"
"""The claim of an engine that it records them."""


def check_routing(config: Config) -> None:
    """Refuse to replay the choices of an engine that does not record them, or of episodes.

    Raises:
        PlanError: naming the engine, or the agent loop.
    """
    if not config.train.replay_choices:
        return
    setting = f"{SETTING} = True ({config.origins[SETTING]})"
    check_engine(config, KEEPS, f"{setting} needs the choices that were made while sampling", f"{SETTING} = False")
    loop = config.choice("train.agent_loop").component
    if loop.declares.get("turns", False):
        raise PlanError(
            f"{setting}: the choices of episodes with several turns are not recorded, and train.agent_loop is"
            f" '{loop.name}'; set {SETTING} = False"
        )


def check_recorded(config: Config, drawn: Completions) -> None:
    """Refuse completions without the choices that are to be replayed.

    Raises:
        PluginError: naming the engine.
    """
    if config.train.replay_choices and (drawn.choices is None or drawn.prompt_choices is None):
        engine = config.choice("train.rollout").component
        how = f"declares '{KEEPS}' and returned no 'choices' and 'prompt_choices' although"
        raise engine.wrong(f"{how} generate(keep_choices=True) was called")

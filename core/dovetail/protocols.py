"""The protocols of stateful components; import them from here.

A plugin implements each as a frozen, keyword-only attrs class. The protocols are defined next to the records of their
kinds, in `dovetail.kinds`. Axes of arrays are named as in `docs/glossary.md`: `seq` runs over completions, `prompt`
over prompts, `token` over positions.
"""

# ruff: noqa: F405 (a test compares `__all__` with those of the modules)
from dovetail.config.settings import Sampling
from dovetail.kinds.algorithm import *  # noqa: F403
from dovetail.kinds.data import *  # noqa: F403
from dovetail.kinds.episodes import *  # noqa: F403
from dovetail.kinds.model import *  # noqa: F403
from dovetail.kinds.observers import *  # noqa: F403
from dovetail.kinds.rollout import *  # noqa: F403
from dovetail.kinds.sizing import *  # noqa: F403

__all__ = [
    "ASSISTANT",
    "Adapter",
    "AgentLoop",
    "Axes",
    "Call",
    "Completions",
    "Curriculum",
    "DoesNotFit",
    "EntropyController",
    "Episodes",
    "Example",
    "Finish",
    "Follower",
    "Interaction",
    "KLController",
    "LanguageModel",
    "Message",
    "ModelMaker",
    "OpenLoop",
    "Optimizer",
    "Parsed",
    "Place",
    "Replay",
    "Result",
    "RewardManager",
    "Rollout",
    "RolloutEngine",
    "Running",
    "Sampling",
    "Schedule",
    "Settled",
    "Sink",
    "SinkMaker",
    "Sizing",
    "Split",
    "StatefulAdvantage",
    "Step",
    "Task",
    "Tokenizer",
    "TokenizerMaker",
    "Tool",
    "ToolFormat",
    "ToolFunction",
    "Turn",
    "Turns",
    "ValueHead",
    "Weights",
]

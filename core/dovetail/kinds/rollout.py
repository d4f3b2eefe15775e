"""The kinds around sampling."""

from __future__ import annotations

from typing import Final

from dovetail.kinds.kind import Kind

ROLLOUT: Final = Kind(
    name="rollout",
    summary="the engine that samples completions",
    stage="drawn",
    setting="train.rollout",
    default="vanilla",
    protocol="dovetail.protocols:Rollout",
    scaffold="class",
)

SAMPLING_PRESET: Final = Kind(
    name="sampling_preset",
    summary="values for the sampling settings that a config leaves open",
    scaffold="class",
)

AGENT_LOOP: Final = Kind(name="agent_loop", summary="multi-turn control of a rollout")
TOOL: Final = Kind(name="tool", summary="what an agent loop may call")
INTERACTION: Final = Kind(name="interaction", summary="a simulated user or environment")

KINDS: Final = (ROLLOUT, SAMPLING_PRESET, AGENT_LOOP, TOOL, INTERACTION)

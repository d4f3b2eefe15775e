"""The kinds around prompts, completions and their scores."""

from __future__ import annotations

from typing import Final

from dovetail.kinds.kind import Kind

TASK: Final = Kind(
    name="task",
    summary="prompts, dataset columns and demonstrations",
    stage="drawn",
    setting="train.task",
    default="arithmetic",
    protocol="dovetail.protocols:Task",
    scaffold="class",
)

TOKENIZER: Final = Kind(
    name="tokenizer",
    summary="text <-> ids",
    setting="train.tokenizer",
    default="sentencepiece",
    protocol="dovetail.protocols:TokenizerMaker",
    scaffold="class",
)

CURRICULUM: Final = Kind(
    name="curriculum",
    summary="scores so far -> which prompts come next",
    stage="drawn",
    setting="train.curriculum",
    protocol="dovetail.protocols:Curriculum",
    scaffold="class",
)

REPLAY: Final = Kind(
    name="replay",
    summary="earlier completions -> those that a step learns from again",
    stage="filtered",
    setting="train.replay",
    protocol="dovetail.protocols:Replay",
    scaffold="class",
)

REWARD: Final = Kind(
    name="reward",
    summary="completions and dataset columns by name -> one float (or None) per completion",
    stage="scored",
    setting="train.rewards",
    many=True,
    default=("check_answer",),
    reads="columns",
)

PROCESS_REWARD: Final = Kind(
    name="process_reward",
    summary="completions and dataset columns by name -> one number per token of each completion",
    stage="scored",
    setting="train.process_rewards",
    many=True,
    default=(),
    reads="columns",
    parameters={"coef": 1.0},
)

REWARD_MANAGER: Final = Kind(
    name="reward_manager",
    summary="score_table -> scores",
    stage="scored",
    setting="train.reward_manager",
    default="weighted_sum",
    protocol="dovetail.protocols:RewardManager",
    scaffold="class",
)

ANSWER: Final = Kind(name="answer", summary="completions -> the answers that a majority vote counts")

KINDS: Final = (TASK, TOKENIZER, CURRICULUM, REPLAY, REWARD, PROCESS_REWARD, REWARD_MANAGER, ANSWER)

"""The texts of a run: its tokenizer, its agent loop, and the prompts of the splits of its task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dovetail.config import Config
from dovetail.host.prompts import LengthReport, Limit, fit, rendered
from dovetail.protocols import AgentLoop, Example, OpenLoop, Split, Task, Tokenizer, TokenizerMaker, Tool

TOKENIZER = "tokenizer"


def open_tokenizer(config: Config, task: Task, folder: Path) -> Tokenizer:
    """Read the run's tokenizer, or create it and save it with the run."""
    maker: TokenizerMaker = config.choice("train.tokenizer").bind()
    if folder.exists():
        return maker.load(folder)
    tokenizer = maker.make(task.corpus())
    aside = folder.with_name(folder.name + ".tmp")
    aside.mkdir(parents=True, exist_ok=True)
    tokenizer.save(aside)
    aside.rename(folder)
    return tokenizer


def prompts(
    config: Config, task: Task, split: Split, tokenizer: Tokenizer, loop: OpenLoop | None = None
) -> tuple[Sequence[Example], LengthReport]:
    """Return the examples of a split whose prompts fit, and a report of those that do not.

    Their prompts are the texts that the model reads. With an agent loop of several turns they are the task's own,
    because the environment's additions may differ from step to step.
    """
    examples = task.examples(split)
    shown = rendered(examples, renderer(tokenizer, loop))
    return fit(shown if loop is None else examples, tokenizer, prompt_limit(config, split), shown)


def renderer(tokenizer: Tokenizer, loop: OpenLoop | None) -> Callable[[Example], str]:
    """Return the function that renders an example's prompt to the text that the model reads."""
    return (lambda example: tokenizer.render(example["prompt"])) if loop is None else loop.prompt


def open_loop(config: Config, tokenizer: Tokenizer) -> OpenLoop | None:
    """Return the agent loop with its tools and interaction; None if there is only a completion."""
    chosen = config.choices.get("train.interaction")
    interaction = chosen and chosen.bind()
    tools = [
        Tool(name=choice.component.name, function=choice.bind(), target=choice.component.load())
        for choice in config.several("train.tools")
    ]
    loop: AgentLoop = config.choice("train.agent_loop").bind()
    return loop.open(tokenizer, interaction, tools, config.choice("train.tool_format").bind())


def prompt_limit(config: Config, split: str) -> Limit:
    """Return the limit on the prompts of a split."""
    return Limit(
        split=split,
        column="prompt",
        tokens=config.train.max_prompt_tokens,
        setting="train.max_prompt_tokens",
        action=config.train.long_prompts,
        action_setting="train.long_prompts",
    )

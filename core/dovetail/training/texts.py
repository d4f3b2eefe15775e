"""The texts of a run: its tokenizer, its agent loop, and the prompts and demonstrations of its task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.config import Config
from dovetail.data import View
from dovetail.errors import DataError, listing
from dovetail.host.prompts import LengthReport, Limit, fit, rendered
from dovetail.protocols import AgentLoop, Example, OpenLoop, Split, Task, Tokenizer, TokenizerMaker, Tool
from dovetail.run.files import writing

if TYPE_CHECKING:
    from dovetail.training.setup import Setup

TOKENIZER = "tokenizer"


def open_tokenizer(config: Config, task: Task, folder: Path) -> Tokenizer:
    """Read the run's tokenizer, or create it and save it with the run."""
    maker: TokenizerMaker = config.choice("train.tokenizer").bind()
    if folder.exists():
        return maker.load(folder)
    tokenizer = maker.make(task.corpus())
    aside = folder.with_name(folder.name + ".tmp")
    with writing(aside):
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

    Raises:
        PluginError: if an example that is read lacks its prompt, or a column that the task announces.
    """
    examples = _with(("prompt", *task.columns), config, task, split)
    shown = rendered(examples, renderer(tokenizer, loop))
    return fit(shown if loop is None else examples, tokenizer, prompt_limit(config, split), shown)


def _with(keys: Sequence[str], config: Config, task: Task, split: Split) -> Sequence[Example]:
    """Return a view of a task's examples that refuses one without some of these keys when it is read."""
    component = config.choice("eval.task" if split == "eval" else "train.task").component
    with component.named("examples"):
        examples = task.examples(split)
    if not (hasattr(examples, "__len__") and hasattr(examples, "__getitem__")):
        how = (
            f"returned a {type(examples).__name__} for '{split}'; return a sequence, which has a length and is indexed"
        )
        raise component.wrong(how, "examples")
    if not len(examples):
        raise component.wrong(f"has no examples for '{split}'", "examples")

    def checked(example: Example) -> Example:
        if missing := [key for key in keys if key not in example]:
            raise component.wrong(f"gives an example without '{missing[0]}', of {listing(example)}", "examples")
        if isinstance(prompt := example["prompt"], Number | bytes | Mapping | None):
            how = f"gives an example whose prompt is {prompt!r:.80}; prompts are texts or messages"
            raise component.wrong(how, "examples")
        return example

    return View(examples, checked)


def demonstrations(setup: Setup, setting: str, most: int) -> tuple[Any, list[LengthReport]]:
    """Return the demonstrations of at most so many tokens, and reports of those that do not fit.

    Args:
        setup: what the run is made of.
        setting: the setting that limits them, for messages.
        most: its value, tokens of a completion with its end.

    Raises:
        DataError: if the task does not have demonstrations.
        PluginError: if one that is read lacks its prompt or its completion.
    """
    config = setup.config
    component = config.choice("train.task").component
    with component.named("examples"):
        examples = setup.task.examples("sft")
        lacks = not len(examples) or "completion" not in examples[0]
    if lacks:
        readers = [call.label for call in setup.algorithm.plan.calls if call.inputs == "demonstrations"]
        advice = f"{readers[0]} reads them, take another task" if readers else "set sft.steps = 0"
        how = f"has no demonstrations (examples with a completion); {advice}"
        raise DataError(str(component.wrong(how, "examples")))
    examples = _with(("prompt", "completion"), config, setup.task, "sft")
    completions = Limit(
        split="sft",
        column="completion",
        tokens=most - 1,
        setting=f"{setting} - 1",
        action=config.sft.long_completions,
        action_setting="sft.long_completions",
    )
    # completions first: once prompts are rendered, each example that is read costs a rendering
    examples, second = fit(examples, setup.tokenizer, completions)
    examples, first = fit(rendered(examples, setup.render), setup.tokenizer, prompt_limit(config, "sft"))
    return examples, [first, second]


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

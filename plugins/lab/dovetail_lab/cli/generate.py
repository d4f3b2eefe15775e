"""`dovetail generate`: completions for a file of prompts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli.options import Commands, add_config, given_path
from dovetail.errors import ConfigError, nearest
from dovetail_lab.cli.policies import add_policy

if TYPE_CHECKING:
    from dovetail.config import Config

PROMPT_FILES = "records"
"""The task that reads files of prompts."""


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "write completions for a file of prompts, with a config's model or the model of a run"
    description = (
        f"{summary}. Each completion is one JSON line: index (of the prompt), sample, prompt, completion, finish,"
        " tokens, logp, and the record of the prompt. If it was interrupted, run it again: it continues where it"
        " stopped. A larger -n adds samples."
    )
    command = commands.add_parser("generate", help=summary, description=description)
    add_config(command)
    add_policy(command)
    command.add_argument("--prompts", type=Path, help=".jsonl, .csv or .parquet (default: the config's eval split)")
    command.add_argument("--prompt-column", default="prompt", help="the column with text or messages (default: prompt)")
    command.add_argument("--chat", action="store_true", help="render text prompts with the tokenizer's chat template")
    command.add_argument(
        "--system", help="with --chat: the system message (default: that of the config's task, if it has one)"
    )
    command.add_argument("--out", type=given_path, required=True, help="file to write, in JSON lines")
    command.add_argument("-n", "--samples", type=int, default=1, help="completions per prompt (default: 1)")
    command.add_argument(
        "--sampling", metavar="PRESET", help="how to sample: greedy, standard, liberal, ... (default: as in the config)"
    )
    command.add_argument("--batch-size", type=int, help="prompts at a time (default: eval.batch_size)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Generate, and print how many completions there are."""
    from dovetail.run.process import prepare
    from dovetail_lab.cli.policies import asked
    from dovetail_lab.cli.progress import progress
    from dovetail_lab.evaluation.asked import at_least_one
    from dovetail_lab.of_run import COMPLETES, warn_of_other_code

    at_least_one("--samples", options.samples)
    at_least_one("--batch-size", options.batch_size)
    config = asked(options).to_generate(options.sampling)
    warn_of_other_code(options.of, config, COMPLETES)
    task = _task(options, config)
    task.examples("eval")  # a file that cannot be read is refused before a model is loaded
    prepare()
    from dovetail.training.texts import prompts
    from dovetail_lab.evaluation.generate import Generator
    from dovetail_lab.evaluation.policy import open_policy
    from dovetail_lab.evaluation.room import Batch

    size = options.batch_size or config.eval.batch_size
    with progress() as watch:
        policy = open_policy(config, options.of, options.checkpoint, Batch(prompts=size, samples=options.samples))
        examples, lengths = prompts(config, task, "eval", policy.tokenizer, policy.loop)
        if lengths.too_long:
            print(lengths)
        generator = Generator(
            policy=policy,
            sampling=config.sampling,
            samples=options.samples,
            batch_size=size,
        )
        written, before = generator(examples, options.out, watch)
    print(f"{written} completions written, {before} were there already: {options.out}")
    return 0


def _task(options: argparse.Namespace, config: Config) -> Any:
    if options.prompts is None:
        return config.choice("eval.task").bind()
    given: Path = options.prompts
    if not given.exists():
        beside = [each.name for each in given.parent.iterdir()] if given.parent.is_dir() else []
        said = f"--prompts: there is no file '{given.absolute()}'.{nearest(given.name, beside)}"
        raise ConfigError(said.removesuffix("."))
    file = str(given)
    reader = config.component("task", PROMPT_FILES).component
    of_the_task = config.choice("train.task").params.get("system") if options.chat else None
    return reader.bind(
        path=file,
        eval_path=file,
        prompt_column=options.prompt_column,
        chat=options.chat,
        system=(of_the_task if options.system is None else options.system) or None,
    )

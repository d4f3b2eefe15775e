"""`dovetail play`: take the model's place in a task or environment, or watch the model in it."""

from __future__ import annotations

import argparse
import sys

from dovetail.cli.options import Commands, add_config
from dovetail.errors import ConfigError, printable
from dovetail_lab.cli.policies import add_policy

WHO = {"read": "reads", "written": "writes"}


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "take the model's place in a task or an environment, or watch the model in it"
    description = (
        f"{summary}. You read what the model would read, and write its turns, a line each (a line that ends with a"
        " backslash goes on in the next one); tools are run and the environment answers as in training. At the end:"
        " why it ended, and every reward."
    )
    command = commands.add_parser("play", help=summary, description=description)
    add_config(command)
    add_policy(command)
    command.add_argument("--watch", action="store_true", help="the model plays: that of --run, or the config's own")
    command.add_argument(
        "--replay",
        action="store_true",
        help="play the newest recorded episode of --run and --index again, without a model or a tool, and compare",
    )
    command.add_argument("--split", choices=("train", "eval"), default="eval", help="(default: eval)")
    command.add_argument("--index", type=int, default=0, help="which prompt of the split (default: 0)")
    command.add_argument(
        "--sampling", metavar="PRESET", help="how the model samples: greedy, standard, ... (default: as in the config)"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play, and print what it came to."""
    from dovetail.run.process import prepare
    from dovetail_lab.cli.policies import asked
    from dovetail_lab.of_run import SCORES, warn_of_other_code

    config = asked(options).to_generate(options.sampling)
    warn_of_other_code(options.of, config, SCORES)
    prepare()
    from dovetail.training.texts import open_loop
    from dovetail_lab.evaluation.play import Person, Shown, example_of, outcome, played, replayed
    from dovetail_lab.evaluation.policy import open_policy, open_tokenizer
    from dovetail_lab.evaluation.room import Batch

    if options.replay:
        if options.of is None or options.watch or options.split != "eval":
            raise ConfigError(
                "--replay plays an evaluation's episode of a run again: it needs --run, and no --watch or --split"
            )
        found, differs = replayed(config, open_tokenizer(config, options.of), options.of, options.index, _show)
        print(printable(f"\n{outcome(found)}\n" + "\n".join(differs or ["the same as in the record"])))
        return 1 if differs else 0
    if options.watch:
        policy = open_policy(config, options.of, options.checkpoint, Batch(prompts=1))
        tokenizer, loop = policy.tokenizer, policy.loop
        example = example_of(config, tokenizer, loop, options.split, options.index)
        with policy.engine() as inner:
            engine = Shown(inner=inner, tokenizer=tokenizer, show=_show, writes=True)
            found = played(config, engine, tokenizer, loop, example, options.index)
    else:
        tokenizer = open_tokenizer(config, options.of)
        loop = open_loop(config, tokenizer)
        example = example_of(config, tokenizer, loop, options.split, options.index)
        person = Person(tokenizer=tokenizer, ask=_asked)
        engine = Shown(inner=person, tokenizer=tokenizer, show=_show, writes=False)
        found = played(config, engine, tokenizer, loop, example, options.index)
    print(printable(f"\n{outcome(found)}"))
    return 0


def _asked() -> str:
    line = input("you> ")
    if not sys.stdin.isatty():  # what was piped in is not on the screen
        print(line)
    return line


def _show(who: str, text: str) -> None:
    print(f"--- the model {WHO[who]}")
    # A model may write anything, the commands of a terminal too.
    print("".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text.strip("\n")))

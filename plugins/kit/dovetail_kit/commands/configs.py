"""`dovetail explain` and `dovetail config`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dovetail.cli.options import Commands, add_config
from dovetail.errors import ConfigError, DovetailError, printable
from dovetail_kit.notices import print_notices

if TYPE_CHECKING:
    from dovetail.config import Config


def add(commands: Commands) -> None:
    """Declare the commands."""
    summary = "print the plan: what runs at each stage, and the provider and readers of each field"
    top = commands.add_parser("explain", help=summary)
    config = commands.add_group("config", help="show, explain or compare configs")
    shown = config.add_parser("show", help="print every value and where it was set")
    also = config.add_parser("explain", help="the same as `dovetail explain`")
    for command, function in ((top, explain), (also, explain), (shown, show)):
        add_config(command)
        command.set_defaults(run=function)
    compared = config.add_parser("diff", help="print the values in which two configs differ; status 1 if there are any")
    compared.add_argument("first", help="a gin file, or the name of a shipped config")
    compared.add_argument("second", help="another one")
    compared.set_defaults(run=diff)


def show(options: argparse.Namespace) -> int:
    """Print every value of a config and where it was set."""
    from dovetail.config import load
    from dovetail.shipped import find
    from dovetail_kit.rendered import render_show

    print(render_show(load(find(options.config), options.overrides)), end="")
    return 0


def diff(options: argparse.Namespace) -> int:
    """Print the values in which two configs differ; status 1 if there are any."""
    from dovetail.config import load
    from dovetail.shipped import find
    from dovetail_kit.difference import difference
    from dovetail_kit.rendered import render_diff

    configs = load(find(options.first)), load(find(options.second))
    print(render_diff(*configs), end="")
    return 1 if difference(*configs) else 0


def explain(options: argparse.Namespace) -> int:
    """Print the plan of a config."""
    from dovetail.config import config_id, load, run_id
    from dovetail.plan import plan_step
    from dovetail.plan.roles import CRITIC
    from dovetail.shipped import find
    from dovetail_kit.rendered import by_stage
    from dovetail_kit.tables import print_table
    from dovetail_lab.sweep.columns import check_known_columns

    loaded = load(find(options.config), options.overrides)
    plan = loaded.plan or plan_step(loaded)
    check_known_columns(loaded)
    _check_loop(loaded)
    print(f"config {config_id(loaded)}   run {run_id(loaded)}\n")
    if said := list(_of_sampling(loaded)):
        print(*said, sep="\n", end="\n\n")
    if loaded.train.length_buckets > 1 or loaded.train.packing:
        from dovetail.step.algorithm import assemble
        from dovetail.step.buckets import described
        from dovetail_kit.commands.fill import expected_fill

        sizes, longest = assemble(loaded).sizes, loaded.sampling.max_tokens
        filled = f"{expected_fill(sizes, longest):.0%} full if lengths are uniform"
        print(f"completions in an update: {described(sizes, longest) or 'whole'}, {filled}\n")
    print_table(
        [("stage", "what runs in it"), *((stage.name, "; ".join(said) or "-") for stage, said in by_stage(plan))]
    )
    print()
    rows = [
        (entry.field, entry.stage, entry.provider, entry.origin, ", ".join(entry.readers)) for entry in plan.entries
    ]
    print_table([("field", "from stage", "provided by", "of", "read by"), *rows])
    if models := [_model(role, loaded) for role in plan.roles if role != CRITIC]:
        print()
        print_table([("model", "after a step", "begins as"), *models])
    print_notices(loaded)
    _check_model(loaded)
    return 0


def _check_loop(config: Config) -> None:
    """Refuse tools and an interaction that the agent loop of a single turn never calls, as the start of a run does.

    Raises:
        DovetailError: as the loop says it.
    """
    from dovetail.run.sources import nothing_looked_up
    from dovetail.training.texts import open_loop

    if config.choice("train.agent_loop").component.declares.get("turns"):
        return  # it takes a tokenizer, which there is none of without training
    nothing: Any = None
    try:
        with nothing_looked_up():
            open_loop(config, nothing)
    except DovetailError:
        raise
    except Exception:  # a loop of anybody, which may look at the tokenizer
        return


def _check_model(config: Config) -> None:
    """Warn of a model that is not here and whose sizes nobody knows: a plan needs none, and a start refuses it."""
    from dovetail.run.sources import nothing_looked_up

    try:
        with nothing_looked_up():
            config.choice("train.model").bind().abstract(1)  # of so small a vocabulary that it fits every model
    except ConfigError as error:
        print(f"warning: {printable(error)} (`dovetail train` would end so)")
    except Exception:  # one on a network, or of anybody, which says what is wrong when it is trained
        return


def _of_sampling(config: Config) -> Iterator[str]:
    """Yield what is special about batches: how old their weights are, how many prompts, whether they are kept."""
    from dovetail.run.journal import MESSAGES, keeps_messages

    train: Any = config.train
    oldest = f"the weights of max(0, n - {train.staleness}) updates"
    if train.in_flight:
        yield (
            f"batch n is sampled beside the trainer with {oldest} or newer ones, and goes on under newer weights as"
            " soon as there are some, so it depends on how fast both sides are"
        )
    elif train.staleness:
        yield f"batch n is sampled and scored with {oldest}, beside the trainer"
    if train.oversample is not None:
        yield (
            f"a round samples {train.prompts_of_round} prompts for a step of {train.prompts}; groups that pass"
            " train.group_filter and are not needed serve the next steps, oldest first"
        )
    if keeps_messages(config):
        yield f"each batch is written to {MESSAGES} before it is trained on, for `dovetail replay`"
    elif train.in_flight:
        yield "no batch is kept (run.keep_messages = False), so the run can never be repeated"


def _model(role: str, config: Config) -> tuple[str, str, str]:
    """Return a row for a model other than policy and critic: its role, its follower and its initial weights."""
    own = config.choices.get(f"{role}.model")
    begins = f"{role}.model = {own.component.spelled}" if own else "the policy when reinforcement learning begins"
    return role, f"roles.{role} = {config.choice(f'roles.{role}').component.spelled}", begins

"""`dovetail names`, `describe` and `search`."""

from __future__ import annotations

import argparse

from dovetail.cli.options import Commands, add_plugins, completed
from dovetail_kit.completions import component_names, kinds


def add(commands: Commands) -> None:
    """Declare the commands."""
    summary = "list the components of a kind, or of all kinds"
    names = commands.add_parser("names", help=summary)
    completed(
        names.add_argument("kind", nargs="?", help="policy_loss, advantage, reward, ... (default: every kind)"), kinds
    )
    add_plugins(names)
    names.set_defaults(run=list_names)
    summary = "say what a setting, a section, a kind or a component is, with its defaults, formula and origin"
    described = commands.add_parser("describe", help=summary)
    what = "policy_loss gspo, or one word: train.lr, train, policy_loss, gspo, policy_loss.gspo.epsilon_low"
    completed(described.add_argument("kind", help=what), kinds)
    named = described.add_argument("name", nargs="?", help="name or alias of a component, or distribution/name")
    completed(named, component_names)
    add_plugins(described)
    described.set_defaults(run=describe)
    summary = "find settings and components by words of their names and descriptions; knows the words of TRL and verl"
    searched = commands.add_parser("search", help=summary)
    searched.add_argument("words", nargs="+", help="such as: learning rate, num_generations, entropy")
    add_plugins(searched)
    searched.set_defaults(run=search)


def list_names(options: argparse.Namespace) -> int:
    """Print the names of one kind with their aliases, or those of every kind that has components."""
    from dovetail.registry import current

    registry, kind = current(), options.kind
    shown = [kind] if kind else list(registry.kinds)
    for each in shown:
        components = registry.components(each)
        if not kind and components:
            print(f"{each}: {registry.kinds[each].summary}")
        for component in components:
            aliases = f"  (= {', '.join(component.aliases)})" if component.aliases else ""
            owner = "" if component.origin.distribution == "dovetail" else f"  [{component.origin.distribution}]"
            print(f"{'' if kind else '  '}{component.name}{aliases}{owner}")
    return 0


def describe(options: argparse.Namespace) -> int:
    """Print what is known about a setting, a section, a kind or a component."""
    from dovetail.registry import current
    from dovetail_kit.lookup import found

    print(found(current(), *(word for word in (options.kind, options.name) if word is not None)))
    return 0


def search(options: argparse.Namespace) -> int:
    """Print the settings and components in which all of the words occur, the best first; status 1 if there are none."""
    from dovetail.registry import current
    from dovetail_kit.lookup import hits

    lines = hits(current(), options.words)
    print(
        "\n".join(lines)
        or f"nothing has all of these words: {' '.join(options.words)}; try fewer, or docs/coming_from.md"
    )
    return 0 if lines else 1

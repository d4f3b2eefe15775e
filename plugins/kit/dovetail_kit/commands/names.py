"""`dovetail names` and `describe`."""

from __future__ import annotations

import argparse
import warnings

from dovetail.cli.complete import completed, component_names, kinds
from dovetail.cli.options import Commands
from dovetail.errors import DovetailWarning


def add(commands: Commands) -> None:
    """Declare the commands."""
    summary = "list the components of a kind, or of all kinds"
    names = commands.add_parser("names", help=summary)
    completed(
        names.add_argument("kind", nargs="?", help="policy_loss, advantage, reward, ... (default: every kind)"), kinds
    )
    names.set_defaults(run=list_names)
    summary = "print the formula, the fields, the parameters and the origin of a component"
    described = commands.add_parser("describe", help=summary)
    completed(described.add_argument("kind", help="policy_loss, advantage, reward, ..."), kinds)
    completed(
        described.add_argument("name", help="name or alias of a component, or distribution/name"), component_names
    )
    described.set_defaults(run=describe)


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
    """Print the docstring of a component, what it reads, its parameters, its aliases and old names, and its origin."""
    from dovetail.config.types import describe as allowed
    from dovetail.registry import REQUIRED, current

    component = current().get(options.kind, options.name)
    notice = current().notice(options.kind, options.name)
    if notice:
        warnings.warn(notice, DovetailWarning, stacklevel=1)
    print(f"{component.label}\n")
    print(component.doc + "\n")
    print(f"reads:   {', '.join(component.reads) or '(nothing)'}")
    for index, (parameter, default) in enumerate(component.params.items()):
        shown = "(required)" if default is REQUIRED else f"= {default!r}"
        compile_time = "  [compile-time]" if parameter in component.static else ""
        range_ = allowed(component.hints[parameter])
        print(f"{'params:  ' if index == 0 else '         '}{parameter} {shown}  ({range_}){compile_time}")
    if component.aliases:
        print(f"aliases: {', '.join(component.aliases)}")
    for old in component.renamed:
        new = old.to or component.name
        print(f"was:     {old.old}, called {new} since {old.since} and refused from {old.removed_in} on")
    print(f"origin:  {component.origin}")
    return 0

"""`dovetail plugins`, `names` and `describe`."""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter

from dovetail.cli.options import Commands


def add(commands: Commands) -> None:
    """Declare the commands."""
    summary = "list the installed plugins and what they register"
    listed = commands.add_parser("plugins", help=summary, description=summary)
    listed.set_defaults(run=plugins)
    summary = "list the components of a kind, or of all kinds"
    names = commands.add_parser("names", help=summary, description=summary)
    names.add_argument("kind", nargs="?")
    names.set_defaults(run=list_names)
    summary = "print a component's formula, fields, parameters and origin"
    described = commands.add_parser("describe", help=summary, description=summary)
    described.add_argument("kind")
    described.add_argument("name")
    described.set_defaults(run=describe)


def plugins(_: argparse.Namespace) -> int:
    """Print each distribution, its version, and how many components of each kind it registers; then what is broken."""
    from dovetail.registry import current

    registry = current()
    found: dict[tuple[str, str], Counter[str]] = {}
    for component in registry.components():
        key = (component.origin.distribution, component.origin.version)
        found.setdefault(key, Counter())[component.kind] += 1
    for (distribution, version), kinds in sorted(found.items()):
        total = sum(kinds.values())
        print(f"{distribution} {version}: {total} component{'s' * (total != 1)}")
        what = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        print(textwrap.fill(what, 100, initial_indent="  ", subsequent_indent="  "))
    for problem in registry.problems:
        print(f"{'broken' if problem.fatal else 'slow'}: {problem.distribution} {problem.version}: {problem.reason}")
    return 1 if any(problem.fatal for problem in registry.problems) else 0


def list_names(options: argparse.Namespace) -> int:
    """Print the names of one kind, one a line with aliases, or every kind that has any."""
    from dovetail.registry import current

    registry, kind = current(), options.kind
    kinds = [kind] if kind else list(registry.kinds)
    for each in kinds:
        components = registry.components(each)
        if not kind and components:
            print(f"{each}: {registry.kinds[each].summary}")
        for component in components:
            aliases = f"  (= {', '.join(component.aliases)})" if component.aliases else ""
            owner = "" if component.origin.distribution == "dovetail" else f"  [{component.origin.distribution}]"
            print(f"{'' if kind else '  '}{component.name}{aliases}{owner}")
    return 0


def describe(options: argparse.Namespace) -> int:
    """Print a component's docstring, what it reads, its parameters with defaults and ranges, its aliases and origin."""
    from dovetail.config.types import describe as allowed
    from dovetail.registry import REQUIRED, current

    component = current().get(options.kind, options.name)
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
    print(f"origin:  {component.origin}")
    return 0

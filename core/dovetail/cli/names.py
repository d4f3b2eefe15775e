"""`dovetail plugins`, `names` and `describe`."""

from __future__ import annotations

import textwrap
from collections import Counter

from dovetail.registry import REQUIRED, current


def plugins() -> int:
    """Print each distribution, its version, and how many components of each kind it registers; then what is broken."""
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


def list_names(kind: str | None) -> int:
    """Print the names of one kind, one a line with aliases, or every kind that has any."""
    registry = current()
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


def describe(kind: str, name: str) -> int:
    """Print a component's docstring, what it reads, its parameters with defaults, its aliases and origin."""
    component = current().get(kind, name)
    print(f"{component.label}\n")
    print(component.doc + "\n")
    print(f"reads:   {', '.join(component.reads) or '(nothing)'}")
    for index, (parameter, default) in enumerate(component.params.items()):
        shown = "(required)" if default is REQUIRED else f"= {default!r}"
        compile_time = "  [compile-time]" if parameter in component.static else ""
        print(f"{'params:  ' if index == 0 else '         '}{parameter} {shown}{compile_time}")
    if component.aliases:
        print(f"aliases: {', '.join(component.aliases)}")
    print(f"origin:  {component.origin}")
    return 0

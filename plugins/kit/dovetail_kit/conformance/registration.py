"""What is claimed of a distribution as a whole: it can be taken in, registers something, and is light to announce."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

from dovetail.registry import Registry
from dovetail.registry.discovery import HEAVY


def problems(distribution: str, registry: Registry) -> list[str]:
    """Return what is wrong with how a distribution registers itself, a line each."""
    found = [str(p) for p in registry.problems if p.distribution == distribution]
    components = [c for c in registry.components() if c.origin.distribution == distribution]
    if not components and not found:
        found.append(
            f"{distribution} registers no component: implement the hook dovetail_components in the module that its"
            " entry point names"
        )
    for component in components:
        try:
            component.load()
        except Exception as error:
            found.append(str(error))
    return found + [
        f"{distribution}: importing '{module}' imports {', '.join(heavy)}, on every command; register lazy targets"
        " ('package.module:attribute'), and import that only in the modules they name"
        for module, heavy in _heavy_imports(distribution).items()
        if heavy
    ]


def _heavy_imports(distribution: str) -> dict[str, list[str]]:
    """Return by module of an entry point what it imports that it should not, found in a fresh process."""
    points = metadata.distribution(distribution).entry_points.select(group="dovetail")
    modules = sorted({point.module for point in points})
    code = (
        "import importlib, json, sys\n"
        "modules, heavy = json.loads(sys.argv[1])\n"
        "found, seen = {}, set()\n"
        "for module in modules:\n"
        "    try:\n"
        "        importlib.import_module(module)\n"
        "    except Exception:\n"
        "        continue\n"
        "    now = {name for name in heavy if name in sys.modules}\n"
        "    found[module], seen = sorted(now - seen), now\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([modules, HEAVY])], capture_output=True, text=True, check=False
    )
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 and done.stdout else {}

"""`dovetail plugin doctor`: everything that can be known of a plugin without training with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

from packaging.utils import canonicalize_name

from dovetail.errors import UnknownNameError, listing, nearest
from dovetail.registry import Component, Registry
from dovetail.registry.compatibility import API_GROUP, ENGINE, declared_api, requirements
from dovetail.registry.discovery import GROUP, HEAVY, SLOW_IMPORT_SECONDS, entry_points, is_disabled
from dovetail_kit.finding import Finding
from dovetail_kit.look import look_at_component

_TIME_IMPORT = """
import json, sys, time
import dovetail.registry
began = time.perf_counter()
__import__(sys.argv[1])
print(json.dumps([time.perf_counter() - began, sorted(set(sys.modules) & set(sys.argv[2:]))]))
"""


def third_parties() -> list[str]:
    """Return the distributions with plugins that are not dovetail's own."""
    return sorted({point.dist.name for point in entry_points() if point.dist and point.dist.name != ENGINE})


def examine(name: str, registry: Registry) -> list[Finding]:
    """Return what is wrong with a distribution, or could be better.

    Raises:
        UnknownNameError: if it is not installed.
    """
    distribution = _installed(name)
    findings = list(_metadata(distribution))
    own = [component for component in registry.components() if component.origin.distribution == distribution.name]
    problems = [problem for problem in registry.problems if problem.distribution == distribution.name]
    findings += [Finding("error", problem.word, problem.reason) for problem in problems if problem.fatal]
    if is_disabled(distribution.name):
        findings.append(Finding("warning", "disabled", "DOVETAIL_DISABLE names it, so that nothing of it is there"))
    if not any(problem.word == "incompatible" for problem in problems):
        findings += _imports(distribution)
        findings += _api(distribution, own, registry)
    for component in own:
        findings += look_at_component(component, registry)
    findings += _files(distribution, own)
    findings += _stamp(distribution)
    return findings


def _installed(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        known = third_parties()
        raise UnknownNameError(
            f"no distribution '{name}' is installed here.{nearest(name, known)} With plugins: {listing(known)}; in the"
            " folder of its pyproject.toml, install it with: pip install -e ."
        ) from None


def _metadata(distribution: metadata.Distribution) -> Iterator[Finding]:
    if not distribution.entry_points.select(group=GROUP):
        package = canonicalize_name(distribution.name).replace("-", "_")
        yield Finding(
            "error",
            "entry point",
            f"it announces no plugin; write in its pyproject.toml: [project.entry-points.{GROUP}] {package} ="
            f' "{package}", and install it again: an editable install does not notice new entry points',
        )
    if distribution.name != ENGINE and not requirements(distribution):
        yield Finding(
            "warning",
            "dependencies",
            f'it does not require {ENGINE}; write dependencies = ["{ENGINE}>={metadata.version(ENGINE)}"], so that pip'
            " refuses what cannot work",
        )


def _imports(distribution: metadata.Distribution) -> Iterator[Finding]:
    """Import each plugin module in a process of its own, as every command does."""
    for point in distribution.entry_points.select(group=GROUP):
        done = subprocess.run(
            [sys.executable, "-c", _TIME_IMPORT, point.module, *HEAVY], capture_output=True, text=True, check=False
        )
        if done.returncode:  # said already, where plugins are taken in
            continue
        seconds, heavy = json.loads(done.stdout.splitlines()[-1])
        if heavy or seconds > SLOW_IMPORT_SECONDS:
            what = f"imports {', '.join(heavy)} and " if heavy else ""
            yield Finding(
                "warning",
                "import",
                f"'{point.value}' {what}takes {seconds:.1f} s, on every command{_file_of(point.module)}; register"
                " targets as 'module:attribute' and leave heavy imports to the modules that they name",
            )


def _file_of(module: str) -> str:
    spec = util.find_spec(module)
    return f" [{spec.origin}]" if spec and spec.origin else ""


def _api(distribution: metadata.Distribution, own: list[Component], registry: Registry) -> Iterator[Finding]:
    if distribution.name == ENGINE:
        return
    said = declared_api(distribution)
    for kind in sorted({component.kind for component in own} - said.keys()):
        today = max(registry.kinds[kind].versions)
        yield Finding(
            "note",
            "contract",
            f"it does not say for which contract of '{kind}' it is written, so v{today} is assumed; write"
            f' [project.entry-points."{API_GROUP}"] {kind} = "v{today}", so that a later dovetail knows',
        )
    for kind in sorted(said.keys() - registry.kinds.keys()):
        yield Finding(
            "warning",
            "contract",
            f"it says for which contract of kind '{kind}' it is written, and nobody opens that kind"
            f".{nearest(kind, registry.kinds)}",
        )


def _files(distribution: metadata.Distribution, own: list[Component]) -> Iterator[Finding]:
    """Whether what is registered is what is installed."""
    if _is_editable(distribution):
        yield Finding(
            "note",
            "files",
            "the install is editable, so nobody knows what a wheel would lack; before you publish: python -m build, and"
            " this command where that wheel is installed",
        )
        return
    shipped = {Path(str(file.locate())).resolve() for file in distribution.files or ()}
    if not shipped:
        return
    for module in sorted({component.origin.module for component in own}):
        spec = util.find_spec(module.partition(".")[0]) and util.find_spec(module)
        if spec and spec.origin and Path(spec.origin).resolve() not in shipped:
            yield Finding(
                "error",
                "files",
                f"'{module}' is {spec.origin}, which the distribution does not ship: it works on this machine only; add"
                " its package to those that the wheel has",
            )
    if own and not any(file.name == "py.typed" for file in shipped):
        yield Finding("note", "files", "no package of it has a file py.typed, so type checkers ignore its annotations")


def _is_editable(distribution: metadata.Distribution) -> bool:
    text = distribution.read_text("direct_url.json")
    return bool(text) and json.loads(text).get("dir_info", {}).get("editable", False)


def _stamp(distribution: metadata.Distribution) -> Iterator[Finding]:
    from dovetail_kit.conformance import stamp

    found = stamp.read(distribution.name)
    if distribution.name != ENGINE and found.state != "current":
        yield Finding("note", "conformance", f"{found}; run: pytest --dovetail-dist={distribution.name}")

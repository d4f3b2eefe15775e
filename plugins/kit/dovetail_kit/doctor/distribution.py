"""Examine a distribution: its metadata, its imports, its components, its files and its last conformance run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata, util
from importlib.machinery import ModuleSpec
from pathlib import Path

from packaging.utils import canonicalize_name

from dovetail.errors import UnknownNameError, listing, nearest
from dovetail.extras import DISTRIBUTION
from dovetail.registry import Component, Registry
from dovetail.registry.compatibility import (
    API_GROUP,
    ENGINE,
    declared_api,
    engine_version,
    owner_of,
    requirements,
)
from dovetail.registry.disabled import is_disabled
from dovetail.registry.discovery import GROUP, SLOW_IMPORT_SECONDS
from dovetail.registry.one_file import files
from dovetail_kit.doctor.component import examine_component
from dovetail_kit.doctor.finding import LEVELS, Finding
from dovetail_kit.doctor.imports import import_costs
from dovetail_kit.installed import third_parties


def examine(name: str, registry: Registry) -> list[Finding]:
    """Return the errors in a distribution or in a single-file plugin, followed by suggestions.

    Raises:
        UnknownNameError: if it is not installed.
    """
    if name in {file.stem for file in files()}:
        said = [problem for problem in registry.problems if problem.distribution == name and not problem.fatal]
        return _ordered([*_registered(name, registry), *(Finding("warning", each.word, each.reason) for each in said)])
    distribution = _installed(name)
    findings = list(_metadata(distribution))
    owner = owner_of(distribution.name)
    own = _components(owner, registry)
    problems = [problem for problem in registry.problems if problem.distribution == owner]
    findings += _registered(owner, registry)
    if is_disabled(owner):
        findings.append(Finding("warning", "disabled", "DOVETAIL_DISABLE names it, so none of it is loaded"))
    if not any(problem.word == "incompatible" for problem in problems):
        findings += _imports(distribution)
        findings += _contracts(distribution, own, registry)
    findings += _files(distribution, own)
    findings += _stamp(distribution)
    return _ordered(findings)


def _components(owner: str, registry: Registry) -> list[Component]:
    return [component for component in registry.components() if component.origin.distribution == owner]


def _registered(owner: str, registry: Registry) -> list[Finding]:
    """Return what is wrong with the plugin's registrations, and with its components."""
    problems = [problem for problem in registry.problems if problem.distribution == owner and problem.fatal]
    findings = [Finding("error", problem.word, problem.reason) for problem in problems]
    for component in _components(owner, registry):
        findings += examine_component(component, registry)
    return findings


def _ordered(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def _installed(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(DISTRIBUTION if name == ENGINE else name)
    except (metadata.PackageNotFoundError, ValueError):
        known = third_parties()
        raise UnknownNameError(
            f"no distribution '{name}' is installed.{nearest(name, known)} With plugins: {listing(known)}; to install"
            " one, run in the folder of its pyproject.toml: pip install -e ."
        ) from None


def _metadata(distribution: metadata.Distribution) -> Iterator[Finding]:
    if not distribution.entry_points.select(group=GROUP):
        package = canonicalize_name(distribution.name).replace("-", "_")
        yield Finding(
            "error",
            "entry point",
            f"it announces no plugin; write in its pyproject.toml: [project.entry-points.{GROUP}] {package} ="
            f' "{package}", and install it again, because an editable install does not notice new entry points',
        )
    if owner_of(distribution.name) != ENGINE and not requirements(distribution):
        yield Finding(
            "warning",
            "dependencies",
            f'it does not require {DISTRIBUTION}; write dependencies = ["{DISTRIBUTION}>={engine_version()}"], so that'
            " pip refuses versions that cannot work together",
        )


def _imports(distribution: metadata.Distribution) -> Iterator[Finding]:
    for cost in import_costs(distribution):
        what = f"imports {', '.join(cost.heavy)} and " if cost.heavy else ""
        if cost.heavy or cost.seconds > SLOW_IMPORT_SECONDS:
            yield Finding(
                "warning",
                "heavy import" if cost.heavy else "slow import",
                f"'{cost.module}' {what}takes {cost.seconds:.1f} s on every command{_file_of(cost.module)}; register"
                " targets as 'module:attribute' and leave heavy imports to the modules that they name",
            )


def _file_of(module: str) -> str:
    spec = _spec_of(module)
    return f" [{spec.origin}]" if spec and spec.origin else ""


def _contracts(distribution: metadata.Distribution, own: list[Component], registry: Registry) -> Iterator[Finding]:
    """Compare the contracts that the metadata names with the kinds of the components."""
    if owner_of(distribution.name) == ENGINE:
        return
    declared = declared_api(distribution)
    used = {component.kind for component in own} - declared.keys()
    unsaid = sorted(
        kind for kind in used if getattr(registry.kinds[kind].origin, "distribution", None) != distribution.name
    )
    if unsaid:
        today = {kind: f"v{max(registry.kinds[kind].versions)}" for kind in unsaid}
        written = ", ".join(f'{kind} = "{version}"' for kind, version in today.items())
        yield Finding(
            "note",
            "contract",
            f"it does not say which contract of {listing(map(repr, unsaid))} it is written for, so"
            f" {listing(sorted(set(today.values())))} is assumed; write {written} below"
            f' [project.entry-points."{API_GROUP}"], so that a later dovetail knows, and install it again',
        )
    for kind in sorted(declared.keys() - registry.kinds.keys()):
        yield Finding(
            "warning",
            "contract",
            f"it says which contract of kind '{kind}' it is written for, but no plugin opens that kind"
            f".{nearest(kind, registry.kinds)}",
        )


def _files(distribution: metadata.Distribution, own: list[Component]) -> Iterator[Finding]:
    """Check that the registered files are the installed ones."""
    if _is_editable(distribution):
        yield Finding(
            "note",
            "files",
            "the install is editable, so files that a wheel would lack cannot be seen; before you publish, run"
            " python -m build, install that wheel elsewhere and run this command there",
        )
        return
    shipped = {Path(str(file.locate())).resolve() for file in distribution.files or ()}
    if not shipped:
        return
    names = {str(file) for file in distribution.files or ()}
    for module in sorted({component.origin.module for component in own}):
        path = module.replace(".", "/")
        if f"{path}.py" in names or f"{path}/__init__.py" in names:
            continue  # a checkout in the current folder may come first on the path, and hide what is installed
        spec = _spec_of(module)
        if spec and spec.origin and Path(spec.origin).resolve() not in shipped:
            yield Finding(
                "error",
                "files",
                f"'{module}' is {spec.origin}, which the distribution does not ship, so it works on this machine only;"
                " add its package to those in the wheel",
            )
    if own and not any(file.name == "py.typed" for file in shipped):
        yield Finding("note", "files", "none of its packages has a file py.typed, so type checkers ignore annotations")


def _spec_of(module: str) -> ModuleSpec | None:
    """Return where a module is; None if it cannot be imported, of which its components' errors tell."""
    try:
        return util.find_spec(module)  # imports the packages around it
    except (Exception, SystemExit):
        return None


def _is_editable(distribution: metadata.Distribution) -> bool:
    text = distribution.read_text("direct_url.json")
    return bool(text) and json.loads(text).get("dir_info", {}).get("editable", False)


def _stamp(distribution: metadata.Distribution) -> Iterator[Finding]:
    from dovetail_kit.conformance import stamp

    found = stamp.read(distribution.name)
    if owner_of(distribution.name) != ENGINE and found.state != "current":
        yield Finding("note", "conformance", f"{found}; run: pytest --dovetail-dist={distribution.name}")

"""`dovetail doctor`, `plugins`, `docs`, and `dovetail plugin new`, `add`, `doctor` and `mutants`."""

from __future__ import annotations

import argparse
import functools
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.options import Commands, add_plugins, completed, given_path
from dovetail_kit.completions import kinds

if TYPE_CHECKING:
    from dovetail_kit.installed import Installed
    from dovetail_kit.mutants.examination import Verdict

NO_PLUGINS: Final = "no plugins are installed except dovetail's own; `dovetail plugin new` writes one"
INTERRUPTED: Final = 130
MOST: Final = 4
"""Processes in which changes are tried: each of them imports JAX, and may compile a model."""
WHICH: Final = "one distribution, or the FILE.py of a single-file plugin (default: all except dovetail)"


def add(commands: Commands) -> None:
    """Declare the commands."""
    summary = "say what this machine has, what JAX sees of it, and what is slow here and why"
    machine = commands.add_parser("doctor", help=summary)
    machine.add_argument("--json", action="store_true", help="print JSON")
    machine.set_defaults(run=doctor)
    summary = "list the installed plugins, what they register and what is broken"
    listed = commands.add_parser("plugins", help=summary)
    listed.set_defaults(run=plugins)
    summary = "write pages about a plugin's components, from their docstrings"
    pages = commands.add_parser("docs", help=summary)
    completed(pages.add_argument("distribution", help="whose components"), distributions)
    place = "where to write KIND.md for each kind (default: docs/components)"
    pages.add_argument("--out", type=given_path, metavar="FOLDER", default=Path("docs/components"), help=place)
    pages.set_defaults(run=docs)
    summary = "write a new plugin, add to one, or examine an installed one"
    actions = commands.add_group("plugin", help=summary)
    _add_new(actions)
    _add_add(actions)
    _add_doctor(actions)
    _add_mutants(actions)


def _add_new(actions: Commands) -> None:
    summary = "write a package with one component, its tests and everything needed to publish it, or a single file"
    new = actions.add_parser("new", help=summary)
    new.add_argument("distribution", help="its name for pip, acme-rl, or the FILE.py of a single-file plugin")
    completed(new.add_argument("kind", help="kind of the component: policy_loss, advantage, reward, ..."), kinds)
    new.add_argument("name", help="name of the component in a config: soft_clip")
    new.add_argument(
        "--out",
        type=given_path,
        metavar="FOLDER",
        help="where to write it (default: a folder with its name; a file, here)",
    )
    new.set_defaults(run=new_plugin)


def _add_add(actions: Commands) -> None:
    summary = "add a component to a package: its file, its tests and its registration"
    add = actions.add_parser("add", help=summary)
    completed(add.add_argument("kind", help="kind of the component: policy_loss, advantage, reward, ..."), kinds)
    add.add_argument("name", help="name of the component in a config: soft_clip")
    place = "that of the package's pyproject.toml (default: this one)"
    add.add_argument("--to", type=given_path, metavar="FOLDER", default=Path(), help=place)
    add.add_argument("--file", metavar="NAME", help="the name of its module (default: the component's)")
    add.set_defaults(run=add_component)


def _add_doctor(actions: Commands) -> None:
    summary = "examine a plugin: entry points, imports, hooks, signatures, docstrings, fields, names, files"
    doctor = actions.add_parser("doctor", help=summary)
    completed(doctor.add_argument("distribution", nargs="?", help=WHICH), distributions)
    add_plugins(doctor)
    doctor.set_defaults(run=examine)


def _add_mutants(actions: Commands) -> None:
    summary = "change a plugin's components in one place at a time, and say which changes their examples do not notice"
    mutants = actions.add_parser("mutants", help=summary)
    completed(mutants.add_argument("distribution", nargs="?", help=WHICH), distributions)
    mutants.add_argument("--only", metavar="KIND.NAME", help="one component: policy_loss.soft_clip")
    add_plugins(mutants)
    mutants.set_defaults(run=mutate)


def doctor(options: argparse.Namespace) -> int:
    """Print the facts about the machine and advice; status 1 if something does not work."""
    from dovetail_kit.machine.command import run

    return run(options)


def docs(options: argparse.Namespace) -> int:
    """Write the pages, and print their paths."""
    from dovetail.registry import current
    from dovetail_kit.pages import write_pages

    for file in write_pages(options.distribution, current(), options.out):
        print(file)
    return 0


def distributions(prefix: str, **_: Any) -> list[str]:
    """Return the distributions with plugins that begin with a prefix, for shell completion."""
    from dovetail.registry.discovery import entry_points

    return sorted({point.dist.name for point in entry_points() if point.dist and point.dist.name.startswith(prefix)})


def plugins(_: argparse.Namespace) -> int:
    """Print each distribution with its components, contracts, last conformance run and problems; status 1 if any."""
    from dovetail.registry import discover
    from dovetail_kit.installed import installed

    registry, _manager = discover()
    found = installed(registry)
    for each in found:
        print(_headline(each))
        what = ", ".join(f"{kind} {count}" for kind, count in each.counts.items())
        if what:
            print(textwrap.fill(what, 100, initial_indent="  ", subsequent_indent="  "))
        for problem in each.problems:
            print(f"  {problem.word}: {problem.reason}")
    return 1 if any(problem.fatal for problem in registry.problems) else 0


def _headline(each: Installed) -> str:
    total = sum(each.counts.values())
    parts = [f"{each.distribution} {each.version}: {total} component{'s' * (total != 1)}"]
    if each.disabled:
        parts.append("disabled by DOVETAIL_DISABLE")
    if each.api:
        parts.append(f"written for {', '.join(f'{kind} v{version}' for kind, version in sorted(each.api.items()))}")
    if each.distribution != "dovetail":
        parts.append(f"conformance {each.stamp}")
    return "; ".join(parts)


def new_plugin(options: argparse.Namespace) -> int:
    """Write a package or a file, and print the next steps.

    Raises:
        ConfigError: if it is to be in a folder that is named like a file.
    """
    from dovetail.errors import ConfigError
    from dovetail.registry import current

    if options.out and options.out.suffix == ".py" and not options.out.is_dir():
        raise ConfigError(
            f"--out {options.out} is a FOLDER, and this looks like a file; a plugin that is a single file:"
            f" dovetail plugin new {options.out.name} {options.kind} {options.name} --out {options.out.parent}"
        )
    if options.distribution.endswith(".py"):
        return _new_file(options)
    from dovetail_kit.scaffold import NewPackage

    plugin = NewPackage.of(options.distribution, options.kind, options.name, current())
    folder = plugin.write(options.out)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    print(f"{folder} has {len(files)} files: {', '.join(map(str, files))}\n")
    print(f"  cd {folder}\n  pip install -e '.[dev]'\n  pytest\n")
    print(
        f"The formula goes into {plugin.component_file}.{' README.md has a config that uses it.' * bool(plugin.usage)}"
    )
    for note in plugin.notes(current()):
        print(note)
    return 0


def _new_file(options: argparse.Namespace) -> int:
    from dovetail.registry import current
    from dovetail_kit.single_file import NewFile

    plugin = NewFile.of((options.out or Path()) / options.distribution, options.kind, options.name, current())
    plugin.write()
    print(f"{plugin.path} has the {options.kind} '{plugin.written.name}' and the hook that registers it\n")
    for command in plugin.commands(current()):
        print(f"  {command}")
    for note in plugin.written.notes(current()):
        print(note)
    return 0


def add_component(options: argparse.Namespace) -> int:
    """Write a component into a package, and print what was done."""
    from dovetail.registry import current
    from dovetail_kit.addition import Addition

    addition = Addition.of(options.to, options.kind, options.name, current(), options.file)
    for line in [*addition.write(), *addition.written.notes(current())]:
        print(line)
    return 0


def examine(options: argparse.Namespace) -> int:
    """Print the findings about a plugin for its author; status 1 if something does not work."""
    from dovetail.registry import discover
    from dovetail.registry.one_file import files
    from dovetail_kit.doctor import LEVELS, examine
    from dovetail_kit.installed import third_parties

    given = [options.distribution] if options.distribution else [*options.plugins]
    chosen = [_distribution(name) for name in given]
    registry, _ = discover()
    chosen = chosen or [*third_parties(), *(file.stem for file in files())]
    if not chosen:
        print(NO_PLUGINS)
    errors = 0
    for name in chosen:
        findings = examine(name, registry)
        counts = {level: sum(f.level == level for f in findings) for level in LEVELS}
        said = ", ".join(f"{count} {level}{'s' * (count > 1)}" for level, count in counts.items() if count)
        print(f"{name}: {said or 'nothing found'}")
        for finding in findings:
            print(f"  {finding}")
        errors += counts["error"]
    return 1 if errors else 0


def _distribution(name: str) -> str:
    """Return a distribution's name; that of a FILE.py, which is loaded, is the file's."""
    from dovetail.registry import add_file

    if not name.endswith(".py"):
        return name
    add_file(name)
    return Path(name).stem


def mutate(options: argparse.Namespace) -> int:
    """Print which changes of components their examples do not notice; status 1 if one cannot be examined."""
    from dovetail.errors import ConfigError
    from dovetail.registry import current
    from dovetail_kit.mutants.examination import chosen, examine
    from dovetail_kit.workers import cores
    from dovetail_lab.cli.progress import progress

    distribution = _distribution(options.distribution) if options.distribution else None
    components = chosen(current(), distribution, options.only)
    if not components:
        print(NO_PLUGINS)
    status = 0
    for component in components:
        name = f"{component.kind}.{component.name}"
        try:
            with progress() as watch:
                verdict = examine(
                    component, functools.partial(watch, f"changes of {name}"), processes=min(cores(), MOST)
                )
        except ConfigError as error:
            print(f"{name}: {error}")
            status = 1
            continue
        if verdict is None:
            print(f"{name}: has no examples")
            continue
        for line in _told(name, verdict):
            print(line)
        if verdict.left:
            return INTERRUPTED
    return status


def _told(name: str, verdict: Verdict) -> Iterator[str]:
    """Yield the lines about a component that was changed."""
    from dovetail_kit.mutants.tree import together

    missed = len(verdict.unnoticed)
    stopped = f" ({verdict.left} others were not tried)" * (verdict.left > 0)
    noticed = (
        f"its examples notice {verdict.made - missed} of {verdict.made} changes{stopped}{', but not' * (missed > 0)}"
    )
    nothing = "there is nothing in it that this command can change, so its examples are not measured"
    yield f"{name}: {noticed if verdict.made else nothing}"
    told = together(verdict.unnoticed)
    yield from (f"  {verdict.file.name}:{mutant}" for mutant in told if not mutant.masked_again)
    if again := [mutant for mutant in told if mutant.masked_again]:
        yield "  and these, which may make no difference, as what comes of them is masked again:"
        yield from (f"    {verdict.file.name}:{mutant}" for mutant in again)
    if verdict.unchanged:
        yield f"  not changed: {'; '.join(verdict.unchanged)}"

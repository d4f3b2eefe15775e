"""`dovetail plugin new`: a package with one component, its tests and everything needed to publish it."""

from __future__ import annotations

import importlib.util
import inspect
import keyword
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any, Final

import attrs
from packaging.utils import canonicalize_name

from dovetail.config.schema import schema
from dovetail.errors import ConfigError, PluginError, UnknownNameError, listing, nearest
from dovetail.extras import DISTRIBUTION
from dovetail.kinds import Kind
from dovetail.registry import Registry, current, normal
from dovetail.registry.compatibility import ENGINE, engine_version
from dovetail.registry.contract import methods_of
from dovetail_kit.bindings import bound_by, needed_by
from dovetail_kit.installed import third_parties

_TEMPLATES = Path(__file__).parent / "templates"

_PACKAGE_FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    "LICENSE": "LICENSE.txt",
    ".gitignore": "gitignore.txt",
    ".github/workflows/tests.yml": "ci.yml.txt",
}

STAND_IN: Final = "StandIn"
"""A name that no template has, to see which names it has."""

OWN: Final = "scale"
"""The hyperparameter that templates have for kinds without one of their own."""

_GENERIC = {"function": "generic", "class": "generic_class"}
"""Templates for kinds without one of their own, such as those of other plugins."""


@attrs.frozen(kw_only=True)
class NewPackage:
    """A package to be written.

    Attributes:
        distribution: its name for pip.
        package: its name for Python.
        kind: the kind of its component.
        name: the name of its component in a config.
        file: the name of the component's module.
    """

    distribution: str
    package: str
    kind: Kind
    name: str
    file: str

    @classmethod
    def of(cls, distribution: str, kind: str, name: str, registry: Registry) -> NewPackage:
        """Check three words from a command line.

        Raises:
            ConfigError: if the name of the distribution is not valid, or something installed has it.
            UnknownNameError: if there is no such kind.
            PluginError: if the name of the component is not an identifier, or hides what its file needs.
        """
        return cls.within(_package_of(distribution), distribution, kind, name, registry)

    @classmethod
    def within(
        cls, package: str, distribution: str, kind: str, name: str, registry: Registry, file: str | None = None
    ) -> NewPackage:
        """Check the words about a component, those about its package being known; `file` is by default its name.

        Raises:
            UnknownNameError: if there is no such kind.
            PluginError: if the name of the component or of its module is not an identifier, or hides what is needed.
        """
        if kind not in registry.kinds:
            known = registry.kinds
            raise UnknownNameError(f"unknown kind '{kind}'.{nearest(kind, known)} Kinds: {listing(known, 60)}")
        for word, what in ((name, "component"), (file or name, "module")):
            plain = normal(word)
            if not plain.isidentifier() or keyword.iskeyword(plain) or plain.startswith("_"):
                raise PluginError(f"'{word}' is not a name for a {what}; use letters, digits and '_': soft_clip")
        plugin = cls(
            distribution=distribution,
            package=package,
            kind=registry.kinds[kind],
            name=normal(name),
            file=normal(file or name),
        )
        plugin._refuse_hiding()
        return plugin

    def _refuse_hiding(self) -> None:
        if clash := self._clash(self.attribute):
            kind = self.kind.name
            raise PluginError(
                f"'{self.name}' cannot be the name of a component of kind {kind}: the file that is written for it"
                f" {clash}; take another one, such as {self.name}_{kind}"
            )
        if self.file in bound_by(_fill("package/init.py.txt", self._words)):
            raise PluginError(
                f"'{self.file}' cannot be the name of a module here: the package's __init__.py has a '{self.file}'"
                " already; take another name"
            )

    @property
    def component_file(self) -> str:
        """The file with the formula."""
        return f"{self.package.replace('.', '/')}/{self.file}.py"

    @property
    def test_file(self) -> str:
        """The file with its tests."""
        return f"tests/test_{self.file}.py"

    @property
    def target(self) -> str:
        """Where the component is, as it is registered."""
        return f"{self.package}.{self.file}:{self.attribute}"

    @property
    def attribute(self) -> str:
        """The name of the function or class.

        A class whose own name means something else has that of its kind behind it: what an environment answers is
        `dovetail.protocols.Step`, so that the interaction `step` is a `StepInteraction`.
        """
        if self.kind.scaffold != "class":
            return self.name
        plain = camel(self.name)
        return f"{plain}{camel(self.kind.name)}" if keyword.iskeyword(plain) or self._clash(plain) else plain

    def _clash(self, attribute: str) -> str:
        """Return what the component's file does with a name that this one would hide; empty if it needs none."""
        text = self._component(STAND_IN)
        used = needed_by(text)
        own = {name.replace(STAND_IN, attribute) for name in bound_by(text) if STAND_IN in name}
        return next((f"{used[name]} '{name}' itself" for name in sorted(own) if name in used), "")

    def _component(self, attribute: str) -> str:
        """Return the text of the component's file, with this name of the function or class."""
        words = self._words_for(attribute if self.kind.scaffold != "class" else self.name, attribute)
        return _fill(f"kinds/{self._stem}.py.txt", words)

    @property
    def _stem(self) -> str:
        special = (_TEMPLATES / "kinds" / f"{self.kind.name}.py.txt").exists()
        return self.kind.name if special else _GENERIC[self.kind.scaffold]

    @property
    def usage(self) -> str:
        """How a config uses the component, for the README; empty if no setting chooses its kind."""
        settings = schema(current()).slots_of(self.kind.name)
        if not settings:
            return ""
        name = f"'{self.distribution}/{self.name}'"
        chosen = f"{settings[0].path} = {f'[{name}]' if settings[0].many else name}"
        return f"In a config:\n\n```gin\ninclude 'quickstart.gin'\n{chosen}\n```\n"

    def notes(self, registry: Registry) -> Iterator[str]:
        """Yield what the author should know before writing the first line."""
        owners = [
            c.origin.distribution for c in registry.components(self.kind.name) if self.name in (c.name, *c.aliases)
        ]
        if owners:
            yield (
                f"note: {' and '.join(owners)} has the {self.kind.name} '{self.name}' too; with both installed, a"
                f" config of yours must say which, '{self.distribution}/{self.name}' or '{owners[0]}/{self.name}'"
            )

    def write(self, folder: Path | None) -> Path:
        """Write the package into a new folder, by default one with the name of the distribution.

        Raises:
            ConfigError: if the folder is not empty.
        """
        folder = Path(self.distribution) if folder is None else folder
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            written = folder / self.package / "__init__.py"
            raise ConfigError(
                f"'{folder}' exists already and is not overwritten; choose another place with --out FOLDER"
                f"{_how_to_add(written) if written.is_file() else ''}"
            )
        for name, text in self.files().items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return folder

    def files(self) -> dict[str, str]:
        """Return the text of every file, by its path in the folder."""
        words = self._words
        found = {path: _fill(f"package/{template}", words) for path, template in _PACKAGE_FILES.items()}
        return found | {
            f"{self.package}/__init__.py": _fill("package/init.py.txt", words),
            f"{self.package}/py.typed": "",
            self.component_file: self._component(self.attribute),
            self.test_file: _fill(f"kinds/{self._stem}.test.txt", words),
        }

    @property
    def _words(self) -> dict[str, str]:
        return self._words_for(self.name, self.attribute)

    def _words_for(self, name: str, attribute: str) -> dict[str, str]:
        kind = self.kind
        reads = _reads(kind.summary)
        opener = kind.origin.distribution
        required = {DISTRIBUTION: engine_version()} | ({} if opener == ENGINE else {opener: kind.origin.version})
        return {
            "distribution": self.distribution,
            "package": self.package,
            "kind": kind.name,
            "name": name,
            "Name": attribute,
            "file": self.file,
            "attribute": attribute,
            "api": str(max(kind.versions)),
            "year": time.strftime("%Y"),
            "dependencies": ", ".join(f'"{name}>={version}"' for name, version in required.items()),
            "usage": self.usage,
            "summary": kind.summary,
            "first": reads[0],
            "parameters": ",\n    ".join(f"{read}: Any" for read in reads),
            "arguments": "\n".join(
                f"        {read}: one of the things it reads; say its shape and unit." for read in reads
            ),
            "methods": "\n\n".join(_stubs(kind)),
            "ones": ", ".join(["1.0"] * len(reads)),
            "threes": ", ".join(f"{read}=3.0" for read in reads),
        }


def camel(name: str) -> str:
    """Return the name of a class.

    >>> camel("soft_clip")
    'SoftClip'
    """
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _fill(template: str, words: dict[str, str]) -> str:
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(words)


def _reads(summary: str) -> tuple[str, ...]:
    """Return the names left of the arrow in `a, b -> c`, with which a kind says what its components read.

    >>> _reads("completion, proof -> score"), _reads("what an agent loop may call")
    (('completion', 'proof'), ('value',))
    """
    left, arrow, _ = summary.partition("->")
    names = tuple(name.strip() for name in left.split(",")) if arrow else ()
    are_parameters = all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
    is_each_once = len({*names, OWN}) == len(names) + 1
    return names if names and are_parameters and is_each_once else ("value",)


def _stubs(kind: Kind) -> Iterator[str]:
    """Yield the methods that a class of a kind must have, to be written by the author."""
    contract = kind.load_protocol()
    for name, method in methods_of(contract).items() if contract else ():
        function = method.fget if isinstance(method, property) else method
        arguments = ", ".join(_parameters(function))
        doc = (inspect.getdoc(function) or "Say what it does.").split("\n", 1)[0]
        prefix = "    @property\n" if isinstance(method, property) else ""
        yield f'{prefix}    def {name}({arguments}) -> Any:\n        """{doc}"""\n        raise NotImplementedError'


def _parameters(function: Any) -> Iterator[str]:
    """Yield the parameters of a method as they are written; of their annotations and defaults, what needs no import."""
    star = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            yield "*"
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = f" = {parameter.default!r}" if isinstance(parameter.default, str | int | float | None) else ""
        yield parameter.name if parameter.name == "self" else f"{stars}{parameter.name}: Any{default}"


def _package_of(distribution: str) -> str:
    """Return the name of a distribution's package.

    Raises:
        ConfigError: if it is not a name for a distribution, or hides something that can be imported.
    """
    if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?", distribution):
        raise ConfigError(
            f"'{distribution}' is not a name for a distribution; use letters, digits, '-' and '.': acme-rl"
        )
    package = canonicalize_name(distribution).replace("-", "_")
    if keyword.iskeyword(package) or package in sys.stdlib_module_names:
        raise ConfigError(
            f"'{package}' already means something in Python, so no package can have it; take another name"
        )
    if canonicalize_name(distribution) in (ENGINE, DISTRIBUTION) or (
        importlib.util.find_spec(package) and not _is_here(package)
    ):
        raise ConfigError(
            f"a package '{package}' is installed already and would be hidden; take another name"
            f"{_how_to_add(_file_of_plugin(distribution, package))}"
        )
    return package


def _how_to_add(file: Path | None) -> str:
    """Return how a plugin, given the file of its package, gets another component; nothing for None."""
    if file is None:
        return ""
    here = next((folder for folder in file.parents[1:3] if (folder / "pyproject.toml").is_file()), "FOLDER")
    return f", or add a component to this one: dovetail plugin add KIND NAME --to {here}"


def _file_of_plugin(distribution: str, package: str) -> Path | None:
    """Return the file of an installed package of a third party's plugin; None for any other package."""
    spec = importlib.util.find_spec(package)
    known = [canonicalize_name(name) for name in third_parties()]
    return Path(spec.origin) if spec and spec.origin and canonicalize_name(distribution) in known else None


def _is_here(package: str) -> bool:
    """Whether an importable package is only a folder of the working directory, such as an earlier attempt."""
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return bool(folders) and all(Path(folder).resolve().parent == Path.cwd() for folder in folders)

"""`dovetail plugin new`: a package with one component, its tests and all that publishing takes."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from string import Template

import attrs
from packaging.utils import canonicalize_name

from dovetail.config.schema import schema
from dovetail.errors import ConfigError, PluginError, UnknownNameError, listing, nearest
from dovetail.registry import Kind, Registry, current, normal
from dovetail.registry.compatibility import ENGINE

_TEMPLATES = Path(__file__).parent / "templates"

_PACKAGE_FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    "LICENSE": "LICENSE.txt",
    ".gitignore": "gitignore.txt",
    ".github/workflows/tests.yml": "ci.yml.txt",
}


@attrs.frozen(kw_only=True)
class NewPackage:
    """A package to be written.

    Attributes:
        distribution: what pip calls it.
        package: what Python imports.
        kind: what its component is.
        name: what configs call the component.
    """

    distribution: str
    package: str
    kind: Kind
    name: str

    @classmethod
    def of(cls, distribution: str, kind: str, name: str, registry: Registry) -> NewPackage:
        """Check three words from a command line.

        Raises:
            ConfigError: if the distribution's name is none, or is taken by something that is installed.
            UnknownNameError: if there is no such kind.
            PluginError: if the component's name is no identifier.
        """
        if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?", distribution):
            raise ConfigError(
                f"'{distribution}' is no name for a distribution; use letters, digits, '-' and '.': acme-rl"
            )
        package = canonicalize_name(distribution).replace("-", "_")
        if keyword.iskeyword(package) or package in sys.stdlib_module_names:
            raise ConfigError(
                f"'{package}' is a word of Python, so no package can be imported by it; take another name"
            )
        if canonicalize_name(distribution) == ENGINE or (importlib.util.find_spec(package) and not _is_own(package)):
            raise ConfigError(f"a package '{package}' is installed already, and would be hidden; take another name")
        if kind not in registry.kinds:
            known = registry.kinds
            raise UnknownNameError(f"unknown kind '{kind}'.{nearest(kind, known)} Kinds: {listing(known, 60)}")
        if not normal(name).isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            raise PluginError(f"'{name}' is no name for a component; use letters, digits and '_': soft_clip")
        return cls(distribution=distribution, package=package, kind=registry.kinds[kind], name=normal(name))

    @property
    def component_file(self) -> str:
        """The file that has the formula."""
        return f"{self.package}/{self._words['module']}.py"

    def notes(self, registry: Registry) -> Iterator[str]:
        """Say what is worth knowing before the first line is written."""
        owners = [
            c.origin.distribution for c in registry.components(self.kind.name) if self.name in (c.name, *c.aliases)
        ]
        if owners:
            yield (
                f"note: {' and '.join(owners)} has a {self.kind.name} '{self.name}' too; with both installed every"
                f" config must say whose, '{self.distribution}/{self.name}' or '{owners[0]}/{self.name}'"
            )

    def write(self, folder: Path | None) -> Path:
        """Write the package into a new folder, by default one of the distribution's name.

        Raises:
            ConfigError: if there is something in that place.
        """
        folder = Path(self.distribution) if folder is None else folder
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise ConfigError(f"'{folder}' exists already, and nothing in it is overwritten; say --out FOLDER")
        for name, text in self.files().items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return folder

    def files(self) -> dict[str, str]:
        """Return the text of every file by its path in the folder."""
        words = self._words
        found = {path: _fill(f"package/{template}", words) for path, template in _PACKAGE_FILES.items()}
        special = (_TEMPLATES / "kinds" / f"{self.kind.name}.py.txt").exists()
        stem = self.kind.name if special else "generic"
        return found | {
            f"{self.package}/__init__.py": _fill("package/init.py.txt", words),
            f"{self.package}/py.typed": "",
            self.component_file: _fill(f"kinds/{stem}.py.txt", words),
            f"tests/test_{words['module']}.py": _fill(f"kinds/{stem}.test.txt", words),
        }

    @property
    def _words(self) -> dict[str, str]:
        name, kind = self.name, self.kind
        class_name = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        reads = _reads(kind.summary)
        required = {ENGINE: metadata.version(ENGINE), kind.origin.distribution: kind.origin.version}
        return {
            "distribution": self.distribution,
            "package": self.package,
            "kind": kind.name,
            "name": name,
            "Name": class_name,
            "module": name,
            "attribute": class_name if kind.scaffold == "class" else name,
            "api": str(max(kind.versions)),
            "year": time.strftime("%Y"),
            "dependencies": ", ".join(f'"{name}>={version}"' for name, version in required.items()),
            "usage": _usage(self),
            "summary": kind.summary,
            "first": reads[0],
            "parameters": ",\n    ".join(f"{read}: Any" for read in reads),
            "arguments": "\n".join(f"        {read}: what it reads; say shape and unit." for read in reads),
            "ones": ", ".join(["1.0"] * len(reads)),
            "threes": ", ".join(f"{read}=3.0" for read in reads),
        }


def _fill(template: str, words: dict[str, str]) -> str:
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(words)


def _reads(summary: str) -> tuple[str, ...]:
    """The names on the left of `a, b -> c`, by which a kind says what its components read.

    >>> _reads("completion, proof -> score"), _reads("what an agent loop may call")
    (('completion', 'proof'), ('value',))
    """
    left, arrow, _ = summary.partition("->")
    names = tuple(name.strip() for name in left.split(",")) if arrow else ()
    return names if names and all(name.isidentifier() and not keyword.iskeyword(name) for name in names) else ("value",)


def _usage(plugin: NewPackage) -> str:
    """How a config uses the component, for the README; nothing where no setting chooses it."""
    roles = schema(current()).slots_of(plugin.kind.name)
    if not roles:
        return ""
    name = f"'{plugin.distribution}/{plugin.name}'"
    chosen = f"{roles[0].path} = {f'[{name}]' if roles[0].many else name}"
    return f"In a config:\n\n```gin\ninclude 'quickstart.gin'\n{chosen}\n```\n"


def _is_own(package: str) -> bool:
    """Whether a module that can be imported is a folder here, which will be refused or is not in the way."""
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return bool(folders) and all(Path(folder).resolve().parent == Path.cwd() for folder in folders)

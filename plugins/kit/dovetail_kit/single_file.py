"""`dovetail plugin new FILE.py`: a plugin that is a single file, with one component and its hook."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from dovetail.config.schema import schema
from dovetail.errors import ConfigError, PluginError
from dovetail.registry import Registry
from dovetail_kit.scaffold import NewPackage

_IMPORT: Final = "import dovetail\n"

_TRAIN: Final = "train quickstart"
_SWEEP: Final = 'sweep quickstart --random 8 "train.lr=loguniform(1e-4,1e-2)"'

_HOOK: Final = '''

@dovetail.hookimpl
def dovetail_components(register):
    """Register what this file has."""
    register("{kind}", "{name}", "{target}")
'''


@attrs.frozen(kw_only=True)
class NewFile:
    """A file to be written.

    Attributes:
        path: where it is to be.
        written: the component, whose module and distribution have the file's name.
    """

    path: Path
    written: NewPackage

    @classmethod
    def of(cls, path: Path, kind: str, name: str, registry: Registry) -> NewFile:
        """Check the words of a command line.

        Raises:
            ConfigError: if the file exists, or hides something that can be imported.
            UnknownNameError: if there is no such kind.
            PluginError: if a name is not an identifier, or hides what the file needs.
        """
        module = path.stem
        if path.exists():
            raise ConfigError(f"'{path}' exists already and is not overwritten; choose another name")
        written = NewPackage.within(module, module, kind, name, registry, file=module)
        if written.file != module:
            raise PluginError(f"'{module}' is not a name for a module; use letters, digits and '_': {written.file}.py")
        if module in sys.stdlib_module_names or importlib.util.find_spec(module):
            raise ConfigError(f"a module '{module}' exists already and would be hidden; give {path.name} another name")
        return cls(path=path, written=written)

    @property
    def text(self) -> str:
        """What the file is to contain: the component of a package, and below it what a package's `__init__.py` has."""
        written = self.written
        target = f"{written.package}:{written.attribute}"
        hook = _HOOK.format(kind=written.kind.name, name=written.name, target=target)
        return f"{_with_import(written.files()[written.component_file])}{hook}"

    def write(self) -> None:
        """Write the file.

        Raises:
            ConfigError: if its folder cannot be made.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"'{self.path}' cannot be written: {error.filename}: {error.strerror}") from error
        self.path.write_text(self.text, encoding="utf-8")

    def commands(self, registry: Registry) -> Iterator[str]:
        """Yield the commands that try it: a run with it, its conformance checks, and what its examples miss."""
        name, settings = self.written.name, schema(registry).slots_of(self.written.kind.name)
        if settings:
            path, value = settings[0].path, f"['{name}']" if settings[0].many else name
            command = _SWEEP if path.startswith("sweep.") else _TRAIN
            yield f'dovetail {command} --plugin {self.path} --set "{path}={value}"'
        yield f"pytest --dovetail-dist={self.path}"
        yield f"dovetail plugin mutants {self.path}"


def _with_import(text: str) -> str:
    """Return a module that imports dovetail too, in the place that linters want.

    >>> _with_import("import json\\n\\nimport attrs\\nfrom a import b\\n")
    'import json\\n\\nimport attrs\\nimport dovetail\\nfrom a import b\\n'
    >>> _with_import("import json\\n\\nx = 1\\n")
    'import json\\n\\nimport dovetail\\n\\nx = 1\\n'
    """
    lines = text.splitlines(keepends=True)
    if _IMPORT in lines:
        return text
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [node for node in imports if _root(node) not in sys.stdlib_module_names]
    before = [node for node in others if isinstance(node, ast.Import) and _root(node) < "dovetail"]
    last = max((node.end_lineno or 0 for node in before or imports), default=0)
    if before:
        lines.insert(last, _IMPORT)
    elif others:
        lines.insert(others[0].lineno - 1, _IMPORT)
    else:
        lines.insert(last, f"\n{_IMPORT}")
    return "".join(lines)


def _root(node: ast.Import | ast.ImportFrom) -> str:
    name = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
    return name.partition(".")[0]

"""`dovetail plugin add`: another component for a package, with its tests and its registration."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from dovetail.errors import ConfigError
from dovetail.registry import Registry
from dovetail.registry.compatibility import API_GROUP
from dovetail.registry.discovery import GROUP
from dovetail_kit.scaffold import NewPackage

HOOK: Final = "dovetail_components"
WIDTH: Final = 120


@attrs.frozen(kw_only=True)
class Addition:
    """A component that is to be added to a package.

    Attributes:
        folder: that of the package's `pyproject.toml`.
        source: that in which its modules are: the folder itself, or its `src`.
        hook: the file with the hook `dovetail_components`.
        written: the package and the component, from whose templates the files are made.
    """

    folder: Path
    source: Path
    hook: Path
    written: NewPackage

    @classmethod
    def of(cls, folder: Path, kind: str, name: str, registry: Registry, file: str | None = None) -> Addition:
        """Look for the package in a folder, and check words from a command line; `file` is the name of the module.

        Raises:
            ConfigError: if there is no plugin in the folder, or the component's files are there already.
        """
        project = _project(folder / "pyproject.toml")
        announced = _announced(project, GROUP)
        if not announced:
            raise ConfigError(
                f"'{folder / 'pyproject.toml'}' has no entry point in the group '{GROUP}', so it is not a plugin's;"
                " `dovetail plugin new` writes one"
            )
        module = next(iter(announced.values())).partition(":")[0]
        source, hook = _find(folder, module)
        if hook.parent == source:
            raise ConfigError(
                f"'{hook}' is a single module; make a package of it, the folder '{module}' with an __init__.py, so"
                " that each component has a file"
            )
        _check_hook(hook)
        package = _package_of(source, module)
        written = NewPackage.within(package, project["name"], kind, name, registry, file)
        made = cls(folder=folder, source=source, hook=hook, written=written)
        for path in made.paths():
            if path.exists():
                raise ConfigError(
                    f"'{path}' exists already and is not overwritten; choose another file with --file, such as --file"
                    f" {written.name}_{written.kind.name}"
                )
        return made

    def paths(self) -> tuple[Path, Path]:
        """Return where the component and its tests are to be."""
        return self.source / self.written.component_file, self.folder / self.written.test_file

    def write(self) -> list[str]:
        """Write the files, register the component, and return what was done and what is left to do, line by line."""
        files = self.written.files()
        for path, name in zip(self.paths(), (self.written.component_file, self.written.test_file), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[name], encoding="utf-8")
        done = [f"wrote {self.paths()[0]} and {self.paths()[1]}"]
        text, end = _read(self.hook)
        more = _registering(text, self.written)
        if more is None:
            call = "".join(line.strip() for line in _call("register", self.written, "").splitlines())
            done.append(f"not registered: add this to the hook {HOOK}, wherever it is: {call}")
        else:
            self.hook.write_text(more, encoding="utf-8", newline=end)
            done.append(f"registered it in {self.hook}")
        return done + self._announce()

    def _announce(self) -> list[str]:
        """Add the version of the kind's contract to `pyproject.toml`, where others are; return what is left to do."""
        path, kind = self.folder / "pyproject.toml", self.written.kind
        text, end = _read(path)
        if kind.name in _announced(_project(path), API_GROUP):
            return []
        table = re.search(
            rf"""^\[project\.entry-points\.["']{re.escape(API_GROUP)}["']\][^\n]*\n(?:[^\[\n][^\n]*\n)*""",
            text if text.endswith("\n") else f"{text}\n",
            re.MULTILINE,
        )
        if table is None:
            return []  # it says for no kind which contract it is written for
        line = f'{kind.name} = "v{max(kind.versions)}"\n'
        more = table.string[: table.end()] + line + table.string[table.end() :]
        path.write_text(more, encoding="utf-8", newline=end)
        return [f"added {line.strip()} to {path}: install the package again, pip install -e {self.folder}"]


def _project(path: Path) -> Mapping[str, Any]:
    """Return the table `project`.

    Raises:
        ConfigError: if there is none.
    """
    if not path.is_file():
        raise ConfigError(
            f"there is no '{path}'; run this in the folder of a plugin, or name that with --to FOLDER; `dovetail plugin"
            " new` writes a plugin"
        )
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' cannot be read: {error}") from None
    if not isinstance(project, dict) or not isinstance(project.get("name"), str):
        raise ConfigError(f"'{path}' has no project.name")
    return project


def _announced(project: Mapping[str, Any], group: str) -> Mapping[str, str]:
    """Return the entry points of a group; what is not written as a table of texts announces nothing."""
    points = project.get("entry-points")
    of_group = points.get(group) if isinstance(points, dict) else None
    return {
        name: value
        for name, value in (of_group.items() if isinstance(of_group, dict) else ())
        if isinstance(value, str)
    }


def _read(path: Path) -> tuple[str, str]:
    """Return a text with plain line ends, and the line end that the file has."""
    text = path.read_bytes().decode("utf-8")
    return text.replace("\r\n", "\n"), "\r\n" if "\r\n" in text else "\n"


def _check_hook(hook: Path) -> None:
    """Refuse a module that cannot be read, before anything is written.

    Raises:
        ConfigError: with the line at fault.
    """
    try:
        ast.parse(_read(hook)[0])
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{hook}' cannot be read: {error}") from None
    except SyntaxError as error:
        raise ConfigError(f"'{hook}', line {error.lineno}: {error.msg}; correct it first") from None


def _package_of(source: Path, module: str) -> str:
    """Return the outermost package that a module is in; folders around it without an `__init__.py` may be shared with
    other distributions.
    """
    parts = module.split(".")
    around = [parts[:count] for count in range(1, len(parts) + 1)]
    own = (each for each in around if source.joinpath(*each, "__init__.py").is_file())
    return ".".join(next(own, parts[:-1]))


def _find(folder: Path, module: str) -> tuple[Path, Path]:
    """Return the folder in which modules are, and the file of one.

    Raises:
        ConfigError: if it is not there.
    """
    stem = Path(*module.split("."))
    for source in (folder, folder / "src"):
        for file in (source / stem / "__init__.py", (source / stem).with_suffix(".py")):
            if file.is_file():
                return source, file
    raise ConfigError(f"its entry point names the module '{module}', which is neither in '{folder}' nor in its 'src'")


def _registering(text: str, written: NewPackage) -> str | None:
    """Return a module in which the hook registers one component more; None if the hook is not there, or not plain."""
    hook = _hook_of(text)
    if hook is None:
        return None
    register, last = hook.args.args[-1].arg, hook.body[-1]
    assert last.end_lineno is not None
    lines = text.splitlines(keepends=True)
    before = isinstance(last, ast.Return)
    at = last.lineno - 1 if before else last.end_lineno
    lines.insert(at, _call(register, written, " " * last.col_offset))
    more = "".join(lines)
    try:
        found = _hook_of(more)
    except SyntaxError:
        return None  # a hook in one line, say
    return more if found and len(found.body) == len(hook.body) + 1 else None


def _hook_of(text: str) -> ast.FunctionDef | None:
    """Return the hook of a module; None if there is none, or several, or nobody knows whether its end is reached."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name == HOOK]
    if len(functions) != 1 or not functions[0].args.args:
        return None
    (hook,) = functions
    *body, last = hook.body
    inner = [*body, *([] if isinstance(last, ast.Return) else [last])]
    leaves = (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom)
    return None if any(isinstance(node, leaves) for each in inner for node in ast.walk(each)) else hook


def _call(register: str, written: NewPackage, indent: str) -> str:
    words = [f'"{word}"' for word in (written.kind.name, written.name, written.target)]
    line = f"{indent}{register}({', '.join(words)})\n"
    if len(line) <= WIDTH:
        return line
    return "".join([f"{indent}{register}(\n", *(f"{indent}    {word},\n" for word in words), f"{indent})\n"])

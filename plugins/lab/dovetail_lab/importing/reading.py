"""Read a peer's settings from YAML, JSON, a shell script with `key=value` words, or the calls of a Python script."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dovetail.errors import ConfigError, listing
from dovetail_lab.importing.sheet import Given

OVERRIDE: Final = re.compile(r"""(?<![\w./-])[+~]{0,2}([A-Za-z_]\w*(?:\.\w+)*)=("[^"]*"|'[^']*'|[^\s\\;|&]+)""")
"""A word `a.b.c=value` of a command line."""
ASSIGNMENT: Final = re.compile(
    r"""^\s*(?:export\s+)?([A-Za-z_]\w*)=("[^"]*"|'[^']*'|\$\(\([^()]*(?:\([^()]*\)[^()]*)*\)\)|[^\s;]*)\s*(?:;|$)"""
)
"""A line `NAME=value`, whose value may be arithmetic, `$((1024 * 2))`."""
COMMAND: Final = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=\"?\$\(")
"""A variable that takes what a command writes, which only the shell could run."""
COMMENT: Final = re.compile(r"`#[^`]*`|(^|\s)#.*")
"""The rest of a line, or, between the words of a command, a comment in backticks."""
ARITHMETIC: Final = re.compile(r"\$\(\((.*)\)\)")
MOST: Final = 10_000
LARGEST: Final = 10_000_000
"""The greatest size of a file in bytes; those of the peers' examples are a few thousand."""
LONGEST: Final = 100_000
"""The greatest number of characters of a shell variable: in a loop of assignments each could double the last."""
OPERATIONS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    ast.Mod: lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}
VARIABLE: Final = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)")


def read(path: Path, calls: Mapping[str, str], *, base: str | None = None) -> dict[str, Given]:
    """Return the settings of a file by their dotted names.

    Args:
        path: `.yaml`, `.yml`, `.json`, `.sh` or `.py`.
        calls: of a Python script, the calls whose arguments are settings, and what their names begin with.
        base: a word of a shell script that names a YAML file which the other words override.

    Raises:
        ConfigError: if the file is missing, cannot be read, or has none.
    """
    readers = {".yaml": _yaml, ".yml": _yaml, ".json": _yaml, ".sh": _shell, ".py": _python}
    if path.suffix not in readers:
        raise ConfigError(f"{path}: settings are read from {listing(readers)}, not from '{path.suffix}'")
    try:
        found = dict(readers[path.suffix](_text(path), path.name, calls))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (RecursionError, MemoryError):  # MemoryError: Python's parser, of brackets; there is memory enough
        raise ConfigError(f"{path}: it is nested too deeply") from None
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from error
    if base is not None and base in found:
        found = _read_base(path, str(found.pop(base).value)) | found
    if not found:
        wanted = f"; a Python script is read for calls of {listing(calls)}" if path.suffix == ".py" else ""
        raise ConfigError(f"{path}: there are no settings in it{wanted}")
    return found


def modules_of(targets: Any) -> str:
    """Return PEFT's `target_modules` as a regular expression of whole names.

    >>> modules_of(["q_proj", "v_proj"]), modules_of("all-linear")
    ('.*\\\\.(q_proj|v_proj)', '.*')
    """
    if isinstance(targets, str):
        return ".*" if targets == "all-linear" else targets
    return rf".*\.({'|'.join(map(str, targets or ()))})" if targets else ".*"


def rows_of(files: object) -> int:
    """Count the rows of .jsonl and .parquet files; 0 where one is not here or cannot be counted."""
    names = files if isinstance(files, list | tuple) else [files]
    return sum(counts) if all(counts := [_rows(Path(str(name)).expanduser()) for name in names]) else 0


def _rows(path: Path) -> int:
    try:
        if path.is_file() and path.suffix == ".jsonl":
            with path.open("rb") as lines:
                return sum(1 for line in lines if line.strip())
        if path.is_file() and path.suffix == ".parquet":
            import pyarrow.parquet

            return pyarrow.parquet.read_metadata(path).num_rows
    except (ImportError, OSError, ValueError):  # ValueError: pyarrow's, of a file that is none of its own
        pass
    return 0


def _text(path: Path) -> str:
    if path.exists() and not path.is_file():  # a pipe or a device would be read forever
        raise ConfigError(f"{path}: it is not a file")
    if (size := path.stat().st_size) > LARGEST:
        raise ConfigError(f"{path}: it has {size:,} bytes; settings are read from files of at most {LARGEST:,}")
    return path.read_text(encoding="utf-8")


def _read_base(path: Path, named: str) -> dict[str, Given]:
    """Read the file that a script names, from the script's folder or any above it."""
    for folder in path.resolve().parents:
        if (folder / named).is_file():
            return read(folder / named, {})
    raise ConfigError(f"{path}: it overrides '{named}', which is in none of the folders above it")


def _yaml(text: str, name: str, _: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    import yaml

    if name.endswith(".json"):
        values = json.loads(text, object_pairs_hook=_once)
        if not isinstance(values, dict):
            raise ValueError(f"settings are an object, {{...}}, not {type(values).__name__}")
        yield from _flat(values, name)
        return
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            _see_that_small(node)
            yield from _nodes(loader, node, name, "")
    except yaml.YAMLError as error:
        raise ValueError(error) from error
    finally:
        loader.dispose()


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs; json and yaml alone would keep the last of several values of a key.

    Raises:
        ValueError: if a key is there twice.
    """
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"'{key}' is set twice")
        found[key] = value
    return found


def _see_that_small(node: Any) -> None:
    """Refuse aliases that multiply, or that contain themselves.

    Raises:
        ValueError: if a file has more than `MOST` values when its aliases are written out.
    """
    left = [node]
    for _ in range(MOST):
        if not left:
            return
        node = left.pop()
        if isinstance(node, tuple):  # a key and its value
            left += node
        elif isinstance(node.value, list):
            left += node.value
    raise ValueError(f"with its aliases written out it has more than {MOST:,} values")


def _nodes(loader: Any, node: Any, name: str, prefix: str) -> Iterator[tuple[str, Given]]:
    import yaml

    own = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
    _once((f"{prefix}{key.value}", key) for key in own)  # before merged keys, which own ones replace, come to them
    loader.flatten_mapping(node)
    for key, value in node.value:
        dotted = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _nodes(loader, value, name, f"{dotted}.")
        else:
            given = _number(loader.construct_object(value, deep=True))
            # OmegaConf puts in what `${...}` stands for
            computed = isinstance(given, str) and "${" in given
            yield dotted, Given(given, f"{name}:{key.start_mark.line + 1}", computed=computed)


def _flat(values: Mapping[str, Any], place: str, prefix: str = "") -> Iterator[tuple[str, Given]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, place, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", Given(value, place)


def _shell(text: str, name: str, _: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    variables = {"HOME": "~"}
    continued = False  # a word in a later line of a command is a setting, even if it stands there alone
    for number, line in enumerate(text.splitlines(), start=1):
        code, within = COMMENT.sub("", line), continued
        continued = code.rstrip().endswith("\\")
        if not within and (assigned := ASSIGNMENT.match(code)):
            variables[assigned[1]] = _calculated(_expanded(assigned[2].strip("\"'"), variables))
            continue
        if not within and (assigned := COMMAND.match(code)):
            variables.pop(assigned[1], None)
            continue
        for key, value in OVERRIDE.findall(code):
            expanded = _expanded(value.strip("\"'"), variables)
            yield key, Given(_scalar(expanded), f"{name}:{number}", computed="$" in expanded)


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """Put in what is known of variables.

    >>> _expanded("${a:-7} $b $c", {"b": "8"})
    '7 8 $c'

    Raises:
        ValueError: if it becomes longer than `LONGEST`.
    """
    expanded = VARIABLE.sub(lambda found: variables.get(found[1] or found[3], found[2] or found[0]), text)
    if len(expanded) > LONGEST:
        raise ValueError(f"with its variables put in, {text:.40} has more than {LONGEST:,} characters")
    return expanded


def _calculated(text: str) -> str:
    """Return the value of a shell's arithmetic; as it is if it is not whole numbers with `+ - * / %`.

    >>> _calculated("$((1024 * (2 + 8)))"), _calculated("$((7 / 2))"), _calculated("$((RANDOM % 7))"), _calculated("a")
    ('10240', '3', '$((RANDOM % 7))', 'a')
    """
    found = ARITHMETIC.fullmatch(text)
    if found is None:
        return text
    try:
        return str(_whole(ast.parse(found[1].strip(), mode="eval").body))
    except (SyntaxError, ValueError, ArithmeticError, RecursionError):
        return text


def _whole(node: ast.expr) -> int:
    """Return the value of an expression; bash rounds towards zero, and has 64 bits.

    Raises:
        ValueError: if it is not arithmetic of whole numbers.
    """
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = -_whole(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        value = OPERATIONS[type(node.op)](_whole(node.left), _whole(node.right))
    else:
        raise ValueError(ast.unparse(node))
    if abs(value) >= 2**63:
        raise ValueError(f"{value} has more than 64 bits")
    return value


def _scalar(text: str) -> Any:
    """Read a value as Hydra does: numbers, True, null, lists, whose words need no quotes.

    >>> _scalar("1e-6"), _scalar("[q_proj, 3]"), _scalar("['a,b']"), _scalar("q_proj")
    (1e-06, ['q_proj', 3], ['a,b'], 'q_proj')
    """
    words = {"true": True, "false": False, "null": None, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        bare = re.fullmatch(r"\[([^\[\]]+)\]", text)
        return [_scalar(word.strip()) for word in bare[1].split(",")] if bare else _number(text)


def _number(value: Any) -> Any:
    """YAML reads 1e-6 as a text."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return value


def _python(text: str, name: str, calls: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    tree = ast.parse(text, name)
    constants: dict[str, Any] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            value = _literal(statement.value, constants)
            if value is not _COMPUTED:
                constants[statement.targets[0].id] = value
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (called := _name(node.func)) in calls:
            for argument in node.keywords:
                if argument.arg is not None:
                    value = _literal(argument.value, constants)
                    text = ast.unparse(argument.value)
                    place = f"{name}:{argument.value.lineno}"
                    given = Given(text, place, computed=True) if value is _COMPUTED else Given(value, place)
                    yield f"{calls[called]}{argument.arg}", given


_COMPUTED: Final = object()


def _literal(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return constants.get(node.id, _COMPUTED)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return _COMPUTED


def _name(function: ast.expr) -> str:
    """Return the last word of what is called."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")

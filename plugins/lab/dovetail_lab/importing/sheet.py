"""A peer's settings while they are translated: what each becomes, and which are left."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from dovetail.config.types import Mismatch, literal
from dovetail.errors import listing, printable

BOUNDLESS: Final = 1e9
"""What stands for no bound, where a setting here must have one."""
SINKS: Final = ("tensorboard", "wandb", "mlflow", "trackio")
"""The sinks that have the same name everywhere."""
QUIET: Final = ("console", "none", "all")
"""What peers write there that names no other program: the console is always a sink, and 'all' is what is installed."""
NOTHING: Final = object()
UNKNOWN: Final = "this translation does not know it"
COMPUTED: Final = "it is computed in the script"
UNFIT: Final = "it is not a value that this setting can have; the value here is the default"
MISFITS: Final = (TypeError, ValueError, ArithmeticError, LookupError, SyntaxError, Mismatch)
"""What a translation raises that computes with a list where a number is expected, or that gin cannot write."""


@attrs.frozen
class Given:
    """A value of a peer's file, and where it stands. `computed` values are expressions that only the peer could run."""

    value: Any
    place: str
    computed: bool = False


@attrs.frozen
class Line:
    """A line of the gin file; without a target, a heading."""

    target: str
    value: Any
    comment: str


@attrs.frozen
class Blank:
    """The value of a line that the user must fill in: a gin macro that nothing defines, which the reader refuses."""

    name: str


@attrs.define
class Sheet:
    """What a file gives, and what has become of it so far.

    Attributes:
        peer: whose settings they are, for comments.
        given: by their dotted names.
        defaults: those of the peer's that depend on the kind of file, by name; they come before those at a call.
        lines: of the gin file.
        left: what could not be carried, by name, and why.
    """

    peer: str
    given: Mapping[str, Given]
    defaults: Mapping[str, Any] = attrs.field(factory=dict)
    lines: list[Line] = attrs.field(factory=list)
    left: dict[str, str] = attrs.field(factory=dict)
    _taken: dict[str, None] = attrs.field(factory=dict)

    def has(self, name: str) -> bool:
        """Tell whether the file sets something to a value, null among them."""
        return name in self.given and not self.given[name].computed

    def value(self, name: str, default: Any = None) -> Any:
        """Return what the file gives, or the peer's default; it counts as carried.

        A value that has another type than the default is left, with the reason.
        """
        default = self.defaults.get(name, default)
        if name not in self.given:
            return default
        given = self.given[name]
        self._taken[name] = None
        if given.computed:
            self.left[name] = f"{COMPUTED}; the value here is the default"
            return default
        fitting = _fitted(given.value, default)
        if fitting is NOTHING:
            self.left[name] = f"it should be of type {type(default).__name__}"
            return default
        return fitting

    def said(self, name: str, default: Any = None) -> str:
        """Say where a value comes from, for a comment."""
        value = self.value(name, default)
        return f"{name} = {value!r}" if self.has(name) else f"{name} = {value!r}, {self.peer}'s default"

    def heading(self, text: str) -> None:
        """Begin a block of lines."""
        self.lines.append(Line("", None, text))

    def put(self, target: str, value: Any, comment: str = "") -> None:
        """Write a line.

        Raises:
            Mismatch: if gin cannot write the value.
        """
        literal(value)
        self.lines.append(Line(target, value, comment))

    def take(self, name: str) -> None:
        """Count a setting as carried: an object of the script whose own arguments are settings."""
        if name in self.given:
            self._taken[name] = None

    def choose(self, target: str, sources: str, otherwise: str) -> None:
        """Write a line to fill in, unless there is one; its default here would be something else than the peer's.

        Args:
            target: the setting.
            sources: a regular expression of the peer's settings that have it, which the comment names.
            otherwise: the comment where the file has none of these.
        """
        if any(line.target == target for line in self.lines):
            return
        had = [f"{name} = {given.value!r:.60}" for name, given in self.given.items() if re.fullmatch(sources, name)]
        comment = f"fill this in; {self.peer}'s file has {'; '.join(had)}" if had else f"fill this in; {otherwise}"
        blank = Blank(f"FILL_IN_{target.rpartition('.')[2].upper()}")
        self.lines.append(Line(target, blank, " ".join(printable(comment).split())))

    def blanks(self) -> list[str]:
        """Return the settings whose lines are to be filled in."""
        return [line.target for line in self.lines if isinstance(line.value, Blank)]

    def cuts(self, none: Mapping[str, tuple[Any, ...]], prefix: str = "") -> bool:
        """Write top-k, top-p and the like; tell whether one cuts. `none` has the values of each that leave all."""
        found = False
        for name, values in none.items():
            if (value := self.value(f"{prefix}{name}")) not in values:
                self.carry(f"{prefix}{name}", f"sampling.{name}")
                found = True
            elif value is not None:
                self.put(f"sampling.{name}", None, f"{self.said(f'{prefix}{name}')}: all tokens")
        return found

    def carry(
        self,
        name: str,
        target: str,
        default: Any = NOTHING,
        convert: Callable[[Any], Any] = lambda value: value,
        note: str = "",
    ) -> None:
        """Write a setting of one name under another, if it is given or has a default of the peer's."""
        if default is NOTHING and not self.has(name) and name not in self.defaults:
            self.value(name)
            return
        value = self.value(name, None if default is NOTHING else default)
        said = self.said(name, None if default is NOTHING else default)
        self.put(target, convert(value), f"{said}; {note}" if note else said)

    def bound(self, name: str, target: str, default: float, none: tuple[float | None, ...] = (None,)) -> None:
        """Write an upper bound; where the peer has one of the values that stand for `none`, `BOUNDLESS`."""
        if self.value(name, default) in none:
            self.put(target, BOUNDLESS, f"{self.said(name, default)}: no bound")
        else:
            self.carry(name, target, default)

    def sinks(self, name: str, projects: Mapping[str, str]) -> None:
        """Write where metrics go; `projects` has the peer's setting for each parameter of a sink, `wandb.project`."""
        given = self.value(name)
        names = given if isinstance(given, list | tuple) else [] if given is None else [given]
        chosen = [sink for sink in SINKS if sink in names]
        others = [str(each) for each in names if each not in (*SINKS, *QUIET)]
        if others:
            self.left[name] = f"there is no sink {listing(others)}; see `dovetail names sink`"
        if not chosen:
            return
        self.put("run.sinks", ["console", *chosen], self.said(name))
        for target, source in projects.items():
            if target.partition(".")[0] in chosen:
                self.carry(source, f"sink.{target}", convert=str)

    def leave(self, name: str, why: str) -> None:
        """Give a reason why a setting is not carried; nothing happens where the file does not have it."""
        if name in self.given:
            self._taken[name] = None
            self.left[name] = why

    def suspects(self) -> list[str]:
        """Return the settings whose values have been used, the latest first."""
        return [name for name in reversed(self._taken) if name not in self.left]

    def finish(self, reasons: Mapping[str, str]) -> None:
        """Leave everything that nobody has taken, with the reason of the first pattern that its name matches."""
        for name, given in self.given.items():
            if name not in self._taken:
                otherwise = COMPUTED if given.computed else UNKNOWN
                self.left[name] = next(
                    (why for pattern, why in reasons.items() if re.fullmatch(pattern, name)), otherwise
                )


def translated(
    peer: str,
    given: Mapping[str, Given],
    fill: Callable[[Sheet], None],
    reasons: Mapping[str, str],
    defaults: Mapping[str, Any] | None = None,
) -> Sheet:
    """Return a filled sheet; a setting whose value has stopped `fill` is left, and the others are carried."""
    defaults = defaults or {}
    unfit: dict[str, str] = {}
    while True:
        sheet = Sheet(peer, {name: value for name, value in given.items() if name not in unfit}, defaults)
        try:
            fill(sheet)
        except MISFITS:
            if not (suspects := sheet.suspects()):
                raise
            alone = next((name for name in suspects if _fills(sheet, name, fill)), suspects[0])
            unfit[alone] = UNFIT
            continue
        sheet.finish(reasons)
        sheet.given = given
        sheet.left |= unfit
        return sheet


def _fills(sheet: Sheet, without: str, fill: Callable[[Sheet], None]) -> bool:
    given = {name: value for name, value in sheet.given.items() if name != without}
    try:
        fill(Sheet(sheet.peer, given, sheet.defaults))
    except MISFITS:
        return False
    return True


def _fitted(value: Any, default: Any) -> Any:
    """Return a value as the type that the default has; `NOTHING` where it is of another kind.

    YAML reads 1e-6 as a text.

    >>> _fitted("1e-6", 0.1), _fitted(2, 1.0), _fitted(None, 0.5), _fitted("a", 0.5) is NOTHING
    (1e-06, 2.0, None, True)
    """
    if value is None or default is None or isinstance(default, str | tuple | list):
        return value
    try:
        if isinstance(default, bool):
            return value if isinstance(value, bool) else NOTHING
        if isinstance(default, float):
            return float(value)
        return value if isinstance(value, bool) or (isinstance(value, str) and not value.isdigit()) else int(value)
    except (TypeError, ValueError, OverflowError):  # OverflowError: an infinity for a whole number
        return NOTHING

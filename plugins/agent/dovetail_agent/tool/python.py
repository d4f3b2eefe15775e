"""Tool `python`: Python that the model writes, run in the sandbox."""

from __future__ import annotations

import warnings
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import attrs
from annotated_types import Ge, Gt

from dovetail.errors import ConfigError, DovetailWarning
from dovetail.protocols import Result
from dovetail.ranges import in_range
from dovetail_reward._sandbox.outside import protections, run, what_is_open
from dovetail_reward._sandbox.packages import places

_ENDED = {
    "failed": "(the process ended: too much memory, or a crash)",
    "late": "(stopped: over {time_limit:g} seconds)",
    "loud": "(stopped: more than {output_limit} bytes of output)",
}


@attrs.frozen(kw_only=True)
class Python:
    r"""Run Python code and read what it prints, and the value of its last line. Names are kept from call to call.

    It runs in a process of its own, which can read the standard library, `packages` and nothing else, write nothing,
    and reach nobody (the reward `code` says more). Names are kept by running an episode's earlier code again, before
    the new one and without its output: so what an episode has kept is a value, which can be stored, branched from and
    played again. `random` and numpy begin with the same seed in every process; only clocks can tell the runs apart.

    Args:
        code: the program; it may use the standard library.
        state: the code that has run in this episode; the model does not see it.
        keep: whether names are kept. Otherwise each call starts anew.
        time_limit: seconds, those of the code that is run again included.
        output_limit: bytes that may be printed; a process that prints more is ended.
        memory_mb: address space of the process, Python's own included; over 100.
        packages: installed packages that code may import, such as `('numpy', 'sympy')`, with those that they need. Only
            their files can be read besides, so name none that holds right answers. The model is told of them.
        isolation: `full`: refuse to run where anything is open (it takes Linux 5.13).

    Returns:
        What was printed, the traceback of what was raised included, and the code so far. Code that was stopped is not
        run again.

    Raises:
        ConfigError: when built, where `isolation` is `full` and less holds, or a package is not installed.

    >>> tool = Python(isolation="any")
    >>> first = tool("x = 20\nprint('set')", None)
    >>> first.text, tool("2 * (x + 1)", first.state).text
    ('set\n', '42\n')
    """

    keep: bool = True
    time_limit: Annotated[float, Gt(0)] = attrs.field(default=5.0, validator=in_range)
    output_limit: Annotated[int, Ge(1)] = attrs.field(default=20_000, validator=in_range)
    memory_mb: Annotated[int, Gt(100)] = attrs.field(default=512, validator=in_range)
    packages: tuple[str, ...] = ()
    isolation: Literal["full", "any"] = "full"

    declares: ClassVar[MappingProxyType[str, Any]] = MappingProxyType({"own_process": True})

    def __attrs_post_init__(self) -> None:
        """Look at what this machine can hold back, and for the packages."""
        try:
            places(self.packages)
        except ConfigError as error:
            raise ConfigError(f"tool.python.packages: {error}") from error
        weaker = what_is_open()
        if weaker and self.isolation == "full":
            raise ConfigError(f"tool python: {weaker}; isolation = 'any' runs it all the same")
        if weaker:
            warnings.warn(f"tool python: {weaker}", DovetailWarning, stacklevel=2)

    @property
    def remark(self) -> str:
        """What the model reads of the packages, after the description."""
        if not self.packages:
            return ""
        return f"Besides the standard library, it can import {', '.join(self.packages)}."

    def __call__(self, code: str, state: tuple[str, ...] | None) -> Result:
        """Run code after that of the state."""
        before = state or ()
        ran = run(
            code,
            cells=before,
            time_limit=self.time_limit,
            output_limit=self.output_limit,
            memory=self.memory_mb << 20,
            require=protections(),
            packages=self.packages,
        )
        if ran.how != "done":
            said = _ENDED[ran.how].format(time_limit=self.time_limit, output_limit=self.output_limit)
            return Result(f"{ran.output}{said}", state=before, failed=True)
        return Result(ran.output, state=(*before, code) if self.keep else None)

"""Programs that continue from the state of earlier ones, like the cells of a notebook."""

from __future__ import annotations

import ast
import linecache
import os
import random
import sys
import traceback
import types
from collections.abc import Sequence
from typing import Any

_NAME = "cell "


def run(before: Sequence[str], source: str, nowhere: int) -> None:
    """Run cells one after another in one module; only the output of the last one is written.

    The earlier cells have already run in other processes, so random numbers must be the same again.
    """
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    random.seed(0)
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    answer = os.dup(1)
    os.dup2(nowhere, 1)
    for number, cell in enumerate([*before, source]):
        if number == len(before):
            sys.stdout.flush()
            os.dup2(answer, 1)
        _cell(cell, f"{_NAME}{number + 1}", vars(module))


def _cell(source: str, name: str, names: dict[str, Any]) -> None:
    """Run a cell; print the value of an expression at its end, and the traceback of an exception that it raises."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    try:
        parsed = ast.parse(source, name)
        last = parsed.body[-1] if parsed.body else None
        if isinstance(last, ast.Expr):
            parsed.body.pop()
        exec(compile(parsed, name, "exec"), names)
        value = eval(compile(ast.Expression(last.value), name, "eval"), names) if isinstance(last, ast.Expr) else None
        if value is not None:
            print(repr(value))
    except SystemExit:  # it ends a cell, and not those after it
        return
    except BaseException as error:
        print("".join(traceback.format_exception(error.with_traceback(_own(error.__traceback__)))), end="")


def _own(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Drop the stack frames above those of cells."""
    while trace and not trace.tb_frame.f_code.co_filename.startswith(_NAME):
        trace = trace.tb_next
    return trace

"""What a program of the kit answers to the process that has started it.

The program imports and calls plugins, which may print whatever they like on the same stream, before and after.
"""

from __future__ import annotations

import json
from typing import Any, Final

MARK: Final = "dovetail-kit answers: "


def give(answer: Any) -> None:
    """Print an answer, which JSON can hold, on a line of its own."""
    print(f"\n{MARK}{json.dumps(answer)}", flush=True)


def taken(output: str) -> Any:
    """Return the answer in what a program has printed; None if it has ended without one.

    >>> taken(f'loading...\\n{MARK}{{"a": 1}}\\ngoodbye')
    {'a': 1}
    """
    answers = [line for line in output.split("\n") if line.startswith(MARK)]
    return json.loads(answers[-1].removeprefix(MARK)) if answers else None

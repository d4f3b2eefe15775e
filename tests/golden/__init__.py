"""Golden facts: inputs and outputs of other libraries' released code, stored in this folder (see `README.md`)."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np

GOLDEN = Path(__file__).parent

Arrays = dict[str, np.ndarray]


@attrs.frozen(order=True)
class Fact:
    """A case of another library, with the reason if Dovetail departs from it; `tests/golden_report.py` counts them."""

    library: str
    function: str
    case: str
    departure: str = ""


@functools.cache
def load(name: str) -> tuple[list[dict[str, Any]], Arrays]:
    """Return the cases and the arrays of `verl`, `tunix` or `trl`.

    Raises:
        FileNotFoundError: if they are missing; they are part of the repository, so no test is skipped without them.
    """
    with np.load(GOLDEN / f"{name}.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    return json.loads((GOLDEN / f"{name}.json").read_text())["cases"], arrays

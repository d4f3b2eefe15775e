"""Golden facts: inputs and outputs computed by other libraries' own released code.

They lie beside the project, in `shared/golden`, and are not part of it; tests that need them are skipped where the folder is
missing. A small extract under `tests/fixtures` always runs.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

GOLDEN = Path(__file__).parents[2] / "shared" / "golden"

Arrays = dict[str, np.ndarray]


@attrs.frozen(order=True)
class Fact:
    """One case of another library, and the reason where we depart from it; `tests/golden_report.py` counts them."""

    library: str
    function: str
    case: str
    departure: str = ""


@functools.cache
def load(name: str) -> tuple[list[dict[str, Any]], Arrays]:
    """Return the cases and the arrays of `verl`, `tunix` or `trl`; skip the calling test or module without them."""
    cases, arrays = GOLDEN / f"{name}.json", GOLDEN / f"{name}.npz"
    if not cases.is_file():
        pytest.skip(f"no golden facts: {cases} does not exist", allow_module_level=True)
    with np.load(arrays) as archive:
        return json.loads(cases.read_text())["cases"], {key: archive[key] for key in archive.files}

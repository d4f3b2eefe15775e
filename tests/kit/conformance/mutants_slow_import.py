"""A broken component whose module takes its time, every time that it is imported."""

from __future__ import annotations

import time

from tests.kit.conformance.mutants import caught_by

SECONDS = 0.3
"""Of processor time; the test lowers the bound accordingly."""

_until = time.process_time() + SECONDS
while time.process_time() < _until:
    pass


@caught_by("reward", "import_time", slow=True)
def takes_its_time(completions):
    return [0.0] * len(completions)

"""What a process on this machine needs to have several devices."""

import os
from pathlib import Path

from tests.programs import shared

EIGHT = (
    os.environ
    | shared()
    | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
)

"""`dovetail doctor`."""

from __future__ import annotations

import argparse
import json

import attrs

from dovetail.progress import in_bytes
from dovetail_kit.machine.advice import Finding, findings
from dovetail_kit.machine.survey import Survey, survey


def run(options: argparse.Namespace) -> int:
    """Print the facts and the findings; status 1 if something does not work."""
    from dovetail.run.process import prepare

    prepare()
    facts = survey()
    found = findings(facts)
    if options.json:
        print(json.dumps(attrs.asdict(facts) | {"findings": [attrs.asdict(finding) for finding in found]}, indent=2))
    else:
        print("\n".join(described(facts, found)))
    return 1 if any(finding.level == "error" for finding in found) else 0


def described(facts: Survey, found: list[Finding]) -> list[str]:
    """Return the lines to print."""
    versions = ", ".join(
        f"{name} {version}" for name, version in facts.versions.items() if not name.startswith("nvidia")
    )
    missing = [name for name, there in facts.extras.items() if not there]
    free = f"{in_bytes(facts.free)} of {in_bytes(facts.memory)} of memory free"
    lines = [
        f"machine   {facts.system}; {facts.cores} cores, {free}",
        f"python    {facts.python}; {versions}; cuDNN {facts.cudnn or 'none'}",
        f"extras    {', '.join(name for name, there in facts.extras.items() if there) or 'none'}"
        + (f"; not installed: {', '.join(missing)}" if missing else ""),
        f"driver    {_driver(facts)}",
        f"JAX       {facts.backend or 'cannot start'}{_devices(facts)}",
    ]
    lines += [f"set       {name}={value}" for name, value in facts.variables.items()]
    lines += ["", *(map(str, found) if found else ["nothing found that does not work or is slower than it need be"])]
    return lines


def _driver(facts: Survey) -> str:
    if not facts.gpus:
        return "no NVIDIA GPU"
    return "; ".join(
        f"{gpu.name}, driver {gpu.driver or 'unknown'}, {gpu.total - gpu.used:,} of {gpu.total:,} MiB free"
        for gpu in facts.gpus
    )


def _devices(facts: Survey) -> str:
    said = [
        device.kind
        + (f" ({in_bytes(device.limit - device.used)} of {in_bytes(device.limit)} free)" if device.limit else "")
        for device in facts.devices
    ]
    return f": {', '.join(said)}" if said else ""

"""Writes distributions to the path as pip would install them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def write_distribution(
    folder: Path,
    name: str,
    modules: Mapping[str, str],
    entry_points: Mapping[str, Mapping[str, str]],
    *,
    version: str = "1.0",
    requires: Sequence[str] = ("dovetail-rl",),
    record: Sequence[str] = (),
) -> None:
    for path, source in modules.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    groups = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in table.items()) for group, table in entry_points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    if record:
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in record))

"""What an actor of Ray does on the machine of a replica."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from dovetail_rollout.hosted.handover import claim
from dovetail_rollout.hosted.process import GuardedProcess, free_port
from dovetail_rollout.kinds import Program


class Keeper:
    """Starts the server of a replica, and keeps copies of the weights for it."""

    def __init__(self) -> None:
        self._process: GuardedProcess | None = None
        self._claimed: tuple[Path, IO[bytes]] | None = None

    def node(self) -> str:
        """Return the id of the machine."""
        import ray  # pyright: ignore[reportMissingImports]

        return ray.get_runtime_context().get_node_id()

    def run(self, program: Program, folder: str) -> str:
        """Start the server with the model in a folder; return where it is asked."""
        import ray  # pyright: ignore[reportMissingImports]

        address, port = ray.util.get_node_ip_address(), free_port()
        self._process = GuardedProcess(
            program.command(Path(folder), address, port), program.environment(), program.name
        )
        return f"http://{address}:{port}"

    def runs(self) -> bool:
        """Tell whether the server still runs."""
        return self._process is not None and self._process.status is None

    def epitaph(self) -> str:
        """Say how the server ended."""
        return "" if self._process is None else self._process.epitaph()

    def write(self, name: str, files: Mapping[str, bytes]) -> str:
        """Write files into a folder of this name, in place of those before; return its path."""
        if self._claimed is None:
            self._claimed = claim(None)
        root = self._claimed[0]
        for other in root.glob("version-*"):
            shutil.rmtree(other, ignore_errors=True)
        folder = root / name
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        return str(folder)

    def close(self) -> None:
        """End the server, and remove the copies."""
        if self._process is not None:
            self._process.close()
        if self._claimed is not None:
            shutil.rmtree(self._claimed[0], ignore_errors=True)
            self._claimed[1].close()
            self._claimed = None

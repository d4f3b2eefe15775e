"""Run `dovetail import-config`, and read the file that it writes."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from dovetail.cli import main
from dovetail.config import Config, load


@attrs.frozen
class Translated:
    """A gin file and the configuration that it describes."""

    text: str
    config: Config

    def left(self, name: str) -> str:
        """Return the file's comment about a setting that was not translated."""
        rest = re.sub(r"\n#     ", " ", self.text.partition("# Not carried over\n")[2])
        return next(line for line in rest.splitlines() if line.startswith(f"#   {name} = "))


def translated(peer: str, file: Path, text: str) -> Translated:
    """Write another library's file, translate it, and load the result, which must be a config that can be planned."""
    file.write_text(text)
    out = file.with_suffix(".gin")
    assert main(["import-config", peer, str(file), "--out", str(out)]) == 0
    return Translated(out.read_text(), load(out))

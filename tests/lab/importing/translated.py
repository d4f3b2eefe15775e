"""Run `dovetail import-config`, and read the file that it writes."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from dovetail.cli import main
from dovetail.config import Config, load
from dovetail.errors import ConfigError


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
    """Write another library's file, translate it, and load the result, which must be a config that can be planned.

    The lines to fill in are refused by the reader, and then filled in.
    """
    file.write_text(text)
    out = file.with_suffix(".gin")
    assert main(["import-config", peer, str(file), "--out", str(out)]) == 0
    text = out.read_text()
    if blanks := re.findall(r"^(\S+) = %(FILL_IN_\w+)", text, re.MULTILINE):
        with pytest.raises(ConfigError) as refused:
            load(out)
        assert all(f"'%{name}'" in str(refused.value) for _, name in blanks)
    filled = {"TASK": "'arithmetic'", "REWARDS": "['check_answer']", "STEPS": "7", "LR": "1e-6"}
    out.write_text(re.sub(r"%FILL_IN_(\w+)", lambda found: filled[found[1]], text))
    return Translated(text, load(out))

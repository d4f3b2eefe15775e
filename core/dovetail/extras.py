"""Optional libraries: how to install one, said for the installation at hand."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any, Final

DISTRIBUTION: Final = "dovetail-rl"
"""What the project is called where packages are installed from; the import name and the command are `dovetail`."""


def needs(what: str, library: str, extra: str) -> str:
    """Return the message for a library that is not installed, with the command that installs it.

    Args:
        what: the feature that needs it.
        library: its name, in words.
        extra: the extra of this distribution that brings it.
    """
    return f"{what} needs {library}: pip install {requirement(extra)}"


def requirement(extra: str) -> str:
    """Return what to hand to `pip install` for an extra: a checkout, a git address or a release, as installed here.

    Pip writes down where a distribution came from (PEP 610); there is no such note for one from a package index.
    """
    origin = _origin()
    address = str(origin.get("url", ""))
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return f'"{DISTRIBUTION}[{extra}] @ {vcs["vcs"]}+{address}@{vcs["commit_id"]}"'
    if address.startswith("file://"):
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f'{editable}"{address.removeprefix("file://")}[{extra}]"'
    return f'"{DISTRIBUTION}[{extra}]"'


def _origin() -> dict[str, Any]:
    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return {}
    return json.loads(text) if text else {}

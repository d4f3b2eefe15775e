"""Optional libraries: the command that installs one, given how dovetail itself was installed."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any, Final

DISTRIBUTION: Final = "dovetail-rl"
"""The name of the distribution; the import name and the command are `dovetail`."""


def needs(what: str, library: str, extra: str) -> str:
    """Return the message for a library that is not installed, with the command that installs it.

    Args:
        what: the feature that needs the library.
        library: the name of the library, as prose.
        extra: the extra of this distribution that installs it.
    """
    return f"{what} needs {library}: pip install {requirement(extra)}"


def requirement(extra: str) -> str:
    """Return the requirement of an extra for `pip install`: a checkout, a git URL or a release, as installed here.

    pip records the URL that a distribution was installed from (PEP 610), except for one from a package index.
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

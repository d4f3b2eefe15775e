"""Configs that ship with the package."""

from __future__ import annotations

from pathlib import Path

from dovetail.errors import ConfigError, listing, nearest

DEFAULT = "quickstart"

_PACKAGE = Path(__file__).parent


def folder() -> Path:
    """Where they are: inside an installed package, or `configs/gin` of a checkout."""
    installed = _PACKAGE / "configs"
    return installed if installed.exists() else _PACKAGE.parents[1] / "configs" / "gin"


def find(config: str | None) -> Path:
    """Return the file that a command line means: a path, or the name of a shipped config; None means the quickstart.

    Raises:
        ConfigError: if there is neither, with the shipped names and the nearest of them.
    """
    config = DEFAULT if config is None else config
    path = Path(config)
    if path.is_file():
        return path
    named = folder() / f"{config}.gin"
    if named.is_file():
        return named
    names = sorted(p.stem for p in folder().glob("*.gin"))
    raise ConfigError(
        f"there is no config file '{config}'.{nearest(path.stem, names)} Shipped configs, by name: {listing(names)}"
    )

"""Dovetail: reinforcement-learning post-training of language models, assembled from named components.

`core/README.md` suggests an order in which to read the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.hookspecs import hookimpl
from dovetail.registry import STATIC, Chooses, Component, Renamed, declares, get, names, register

if TYPE_CHECKING:
    from dovetail_lab.api import ab, sweep
    from dovetail_lab.one_run import load, open_run, train
    from dovetail_lab.opened import open_policy

__all__ = [
    "STATIC",
    "Chooses",
    "Component",
    "DovetailError",
    "Renamed",
    "ab",
    "declares",
    "get",
    "hookimpl",
    "load",
    "names",
    "open_policy",
    "open_run",
    "register",
    "sweep",
    "train",
]

_LAZY = {
    "ab": "dovetail_lab.api",
    "load": "dovetail_lab.one_run",
    "open_policy": "dovetail_lab.opened",
    "open_run": "dovetail_lab.one_run",
    "sweep": "dovetail_lab.api",
    "train": "dovetail_lab.one_run",
}
"""Where the names are that are imported on first use: every plugin imports this package, so it must stay light."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'dovetail' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)

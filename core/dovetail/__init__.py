"""Dovetail: reinforcement-learning post-training of language models, assembled from named components.

`core/README.md` says in which order to read the engine.
"""

from dovetail.errors import DovetailError
from dovetail.hookspecs import hookimpl
from dovetail.registry import STATIC, Chooses, Component, Renamed, declares, get, names, register

__all__ = [
    "STATIC",
    "Chooses",
    "Component",
    "DovetailError",
    "Renamed",
    "declares",
    "get",
    "hookimpl",
    "names",
    "register",
]

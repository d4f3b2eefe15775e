"""Dovetail: reinforcement-learning post-training of language models, assembled from named components."""

from dovetail.errors import DovetailError
from dovetail.hookspecs import hookimpl
from dovetail.registry import STATIC, Component, get, names, register

__all__ = ["STATIC", "Component", "DovetailError", "get", "hookimpl", "names", "register"]

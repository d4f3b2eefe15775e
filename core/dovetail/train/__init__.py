"""Training. `loop.py` reads top to bottom; called, this package is `dovetail.train`.

Whoever imports a module of this package binds the package to the name `dovetail.train`, over the function of that name,
so the package passes a call on to it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.run.opened import RecordedRun


class _Called(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> RecordedRun:
        """Train; see `dovetail.api.train`."""
        from dovetail.api import train

        return train(*arguments, **options)


sys.modules[__name__].__class__ = _Called

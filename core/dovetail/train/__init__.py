"""Training. Read `loop.py` first, from top to bottom. The package is callable as `dovetail.train`.

Importing a module of this package binds the name `dovetail.train` to the package instead of the function of that name,
so the package forwards calls to the function.
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

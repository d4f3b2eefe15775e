"""The protocols of stateful components; import them from here.

A plugin implements each as a frozen, keyword-only attrs class. The protocols are defined next to the records of their
kinds, in `dovetail.kinds`. Axes of arrays are named as in `docs/glossary.md`: `seq` runs over completions, `prompt`
over prompts, `token` over positions.
"""

from typing import TYPE_CHECKING

from dovetail.config.settings import Sampling as Sampling  # noqa: PLC0414 (a re-export, as type checkers want it)
from dovetail.kinds.algorithm import *  # noqa: F403 (`__all__` of each module lists its protocols)
from dovetail.kinds.data import *  # noqa: F403
from dovetail.kinds.episodes import *  # noqa: F403
from dovetail.kinds.model import *  # noqa: F403
from dovetail.kinds.observers import *  # noqa: F403
from dovetail.kinds.rollout import *  # noqa: F403
from dovetail.kinds.sizing import *  # noqa: F403

if not TYPE_CHECKING:  # `pydoc` prints what is listed; pyright, which would lose the names above, is not to see it
    __all__ = [name for name in globals() if not name.startswith("_") and name != "TYPE_CHECKING"]

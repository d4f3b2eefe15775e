"""The protocols of stateful components; import them from here.

A plugin implements each as a frozen, keyword-only attrs class. The protocols are defined next to the records of their
kinds, in `dovetail.kinds`. Axes of arrays are named as in `docs/glossary.md`: `seq` runs over completions, `prompt`
over prompts, `token` over positions.
"""

from dovetail.config.settings import Sampling
from dovetail.kinds import algorithm, data, episodes, model, observers, rollout, sizing
from dovetail.kinds.algorithm import *  # noqa: F403
from dovetail.kinds.data import *  # noqa: F403
from dovetail.kinds.episodes import *  # noqa: F403
from dovetail.kinds.model import *  # noqa: F403
from dovetail.kinds.observers import *  # noqa: F403
from dovetail.kinds.rollout import *  # noqa: F403
from dovetail.kinds.sizing import *  # noqa: F403

__all__ = ["Sampling"]
__all__ += algorithm.__all__
__all__ += data.__all__
__all__ += episodes.__all__
__all__ += model.__all__
__all__ += observers.__all__
__all__ += rollout.__all__
__all__ += sizing.__all__

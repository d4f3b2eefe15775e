"""What the engine expects of stateful components, all to be imported from here.

Every one is a frozen, keyword-only attrs class in its plugin. The protocols stand beside the records of their kinds in
`dovetail.kinds`. Arrays are described with the field names of `docs/glossary.md`: `seq` is one completion, `prompt` one
prompt, `token` a position.
"""

from dovetail.config.settings import Sampling as Sampling  # noqa: PLC0414 (a re-export, as type checkers want it)
from dovetail.kinds.algorithm import *  # noqa: F403 (a protocol is stated in one file, and nowhere again)
from dovetail.kinds.data import *  # noqa: F403
from dovetail.kinds.episodes import *  # noqa: F403
from dovetail.kinds.model import *  # noqa: F403
from dovetail.kinds.observers import *  # noqa: F403
from dovetail.kinds.rollout import *  # noqa: F403

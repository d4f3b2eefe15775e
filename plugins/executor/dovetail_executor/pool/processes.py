"""Pool `processes`: worker processes of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import attrs
from annotated_types import Ge, Gt, Le

from dovetail import STATIC
from dovetail.ranges import in_range
from dovetail.registry import Component
from dovetail_executor.pooled import Failed, Pooled, around, packed
from dovetail_kit.workers import DAY, Workers, workers


@attrs.frozen(kw_only=True)
class Processes:
    """Processes of this machine, which start at the first call and end with the program, even if that is killed.

    A reward or the tools of an agent loop run here if their setting `pool` says so: `reward.code.pool = 'processes'`,
    `agent_loop.tool_agent.pool = 'processes'`. Each of them has workers of its own. Results, their order and the names
    of metrics are those without a pool. A call that takes too long is ended together with everything that it has
    started, and the other workers go on. A call whose process ends for another reason is tried once more.

    Args:
        workers: the number of processes of each reward, and of the tools of the agent loop; None is one for each core
            that the run may use.
        seconds: time limit of a call: of `rows` completions, or of a call of a tool. It does not include the start of a
            process.
        rows: the number of completions in a call of a reward. A reward that reads `group_ids` gets whole groups.
        failed: what becomes of completions whose call has no result: `error` ends the run, `abstain` leaves them
            without a score, and a number is their score; with the latter two the metric `unscored` counts them. The
            result of a tool's call is then always a message for the policy.

    Raises:
        ConfigError: when it is used, for a reward or a tool that cannot be sent to another process.
    """

    workers: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    seconds: Annotated[float, Gt(0), Le(DAY), STATIC] = attrs.field(default=60.0, validator=in_range)
    rows: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    failed: Annotated[Failed, STATIC] = "error"

    def open(self, function: Callable[..., Any], what: str) -> Workers:
        """Return workers that call a function."""
        return workers(packed(function, what, "pool 'processes'"), self.workers, retries=1)

    def around(self, component: Component, built: Callable[..., Any]) -> Pooled:
        """Return a reward that runs here."""
        return around(component, built, self)

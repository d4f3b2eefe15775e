"""The kind that chooses how a step is computed, so that it fits into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from dovetail.errors import ConfigError
from dovetail.kinds.kind import Kind

if TYPE_CHECKING:
    from dovetail.config import Config
    from dovetail.devices.mesh import Devices
    from dovetail.kinds.model import Weights
    from dovetail.step.algorithm import Algorithm
    from dovetail.training.models import Models

__all__ = ["DoesNotFit", "Settled", "Sizing"]

SIZING: Final = Kind(
    name="sizing",
    summary="config, algorithm, models, devices -> mode of the model, sizes of micro-batches and chunks of logits",
    protocol="dovetail.kinds.sizing:Sizing",
    scaffold="class",
)

KINDS: Final = (SIZING,)


@attrs.frozen(kw_only=True)
class Settled:
    """The choice of how to compute a step.

    Attributes:
        mode: the mode of the model, one of its `modes`; None if it does not have any.
        micro_batch_size: number of completions in a forward and backward pass, on all devices together.
        positions: number of positions in a chunk of logits; None means as many as fit into 64 MiB.
        planned: the estimated peak bytes on each device, for display; 0 if there is no estimate.
    """

    mode: str | None
    micro_batch_size: int
    positions: int | None
    planned: int = attrs.field(default=0, eq=False)

    def __str__(self) -> str:
        mode = f"{self.mode}, " if self.mode else ""
        chunks = f", logits of {self.positions} positions at a time" if self.positions else ""
        return f"{mode}micro-batches of {self.micro_batch_size} completions{chunks}"

    def apply(self, algorithm: Algorithm) -> Algorithm:
        """Return the algorithm with these sizes."""
        sizes = attrs.evolve(algorithm.sizes, micro_batch_size=self.micro_batch_size, positions=self.positions)
        return attrs.evolve(algorithm, sizes=sizes)


class DoesNotFit(ConfigError):
    """A step, a warm start or a model needs more memory than there is, however it is computed.

    Attributes:
        least: the choice that needs least memory; None if something other than a step does not fit.
    """

    def __init__(self, message: str, least: Settled | None = None) -> None:
        super().__init__(message)
        self.least = least


class Sizing(Protocol):
    """Kind `sizing`: chooses how a step is computed. The choice affects time, memory and rounding, but not the result.

    It must not depend on the memory that happens to be free, and it does not need any weights, only their shapes.
    """

    def update(self, config: Config, algorithm: Algorithm, models: Models, devices: Devices) -> Settled:
        """Choose how to compute a step. If `train.micro_batch_size` is set, the choice has this size.

        The choice is stored with the run, so a resumed run computes the same on any machine.

        Args:
            config: the run's config; `memory.limit` is the memory that a step may use on each device.
            algorithm: the planned step. If its `whole_groups` is true, micro-batches must consist of whole groups.
            models: returns the structures of all models, and the shapes of their weights.
            devices: the devices of each role.

        Raises:
            DoesNotFit: if no choice fits into memory.
        """
        ...

    def warm_start(self, config: Config, graphdef: Any, weights: Weights, devices: Devices) -> int:
        """Return the number of demonstrations in a forward and backward pass if `sft.micro_batch_size` is not set.

        Args:
            config: the run's config.
            graphdef: the structure of the policy, in the mode that was chosen.
            weights: its weights; only their shapes are needed.
            devices: the devices of each role.

        Raises:
            DoesNotFit: if a warm start does not fit into memory. This is asked before weights are loaded, too.
        """
        ...

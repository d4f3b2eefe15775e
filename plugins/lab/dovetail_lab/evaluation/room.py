"""Whether a policy that is opened to complete prompts, or to be exported, fits into memory."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from flax import nnx

from dovetail.config import Config
from dovetail.plan.placement import samples_here
from dovetail.progress import in_bytes
from dovetail.protocols import DoesNotFit
from dovetail.training.models import Models
from dovetail_memory.device import allowed, base
from dovetail_memory.footprint import cache_bytes
from dovetail_memory.micro_batch import shares


@attrs.frozen(kw_only=True)
class Batch:
    """What is completed at a time: so many prompts, and so many samples of each."""

    prompts: int
    samples: int = 1

    @classmethod
    def of_evaluation(cls, config: Config, limit: int | None) -> Batch:
        """Return what an evaluation completes at a time, of `limit` prompts or of all."""
        settings = config.eval
        return cls(prompts=min(settings.batch_size, limit or settings.batch_size), samples=max(1, settings.samples))


@attrs.frozen
class Room:
    """The memory of an open policy: its weights, those of a checkpoint beside them, and the cache of a batch."""

    models: Models
    restored: bool
    batch: Batch | None

    def parts(self) -> dict[str, int]:
        """Return the bytes on each device, by purpose; an engine in another process has its cache there."""
        config, devices, (graphdef, weights) = self.models.config, self.models.devices, self.models.shapes()
        found = {"parameters": devices.bytes(weights)}
        if self.restored:
            found["the checkpoint's"] = devices.bytes(weights.trained)
        if self.batch and samples_here(config):
            model, prompts = nnx.merge(graphdef, *weights), self.batch.prompts
            found["cache"] = cache_bytes(model, config, prompts, prompts * self.batch.samples) // shares(devices)
        if own := base():
            found["the process itself"] = own
        return found

    @property
    def fits(self) -> bool:
        """Whether they fit into the memory that may be used."""
        return sum(self.parts().values()) <= allowed(self.models.config.memory)

    def check(self) -> None:
        """Refuse what does not fit, before anything is loaded.

        Raises:
            DoesNotFit: with single changes that would fit.
        """
        parts, may = self.parts(), allowed(self.models.config.memory)
        if sum(parts.values()) <= may:
            return
        fitting = list(self._changes())
        advice = f"with one of these it fits: {'; '.join(fitting)}" if fitting else "no single change makes it fit"
        each = ", ".join(f"{name} {in_bytes(size)}" for name, size in parts.items())
        raise DoesNotFit(
            f"the policy takes {in_bytes(sum(parts.values()))} of each device ({each}), and {in_bytes(may)} may be"
            f" used; {advice}. memory.limit, in GiB, says how much may be used"
        )

    def _changes(self) -> Iterator[str]:
        """Yield single changes with which the policy fits."""
        if self.batch:
            fewer = [self.batch.prompts >> halved for halved in range(1, self.batch.prompts.bit_length())]
            fitting = [n for n in fewer if attrs.evolve(self, batch=attrs.evolve(self.batch, prompts=n)).fits]
            if fitting:
                yield f"eval.batch_size = {fitting[0]}"
        config, choice = self.models.config, self.models.config.choice("train.model")
        if choice.params.get("param_dtype") == "float32":
            half = attrs.evolve(choice, params={**choice.params, "param_dtype": "bfloat16"})
            other = attrs.evolve(config, choices={**config.choices, "train.model": half})
            models = Models(config=other, devices=self.models.devices, vocab_size=self.models.vocab_size)
            if attrs.evolve(self, models=models).fits:
                yield f"{choice.component.label}.param_dtype = 'bfloat16'"

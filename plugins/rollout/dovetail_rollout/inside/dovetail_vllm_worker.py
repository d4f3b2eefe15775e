"""What Dovetail adds to vLLM's worker: it reads all weights in place, and mends what vLLM 0.32 gets wrong on CPUs.

* vLLM keeps a packed copy of the output embedding. If that is tied to the input embedding, its own `reload_weights`
  updates the shared tensor but not the packed copy, so that logits use the old embedding.
* It samples also for a prompt of which only a part has been computed, drops that token, and sets the request's random
  number generator back by an offset. Those of CPUs have none, so that vLLM ends ("CPU Generator does not use offset").
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class DovetailWorker:
    """Mixed into vLLM's worker class by `--worker-extension-cls`."""

    reload_weights: Any
    model_runner: Any

    def dovetail_reload(self, folder: str) -> None:
        """Read the weights of a folder in place."""
        self.reload_weights(weights_path=folder)
        for layer in self.model_runner.get_model().modules():
            # Only CPUs pack, and only embeddings keep the original tensor.
            if hasattr(layer, "cpu_linear") and layer.weight.numel():
                layer.quant_method.process_weights_after_loading(layer)


class SetBack:
    """Stands for a generator that has been set back to its state before the last draw, until the next one."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def get_offset(self) -> int:
        """Return what is handed to `set_offset` again, less a constant."""
        return 0

    def set_offset(self, offset: int) -> None:
        """Do nothing; it is done."""


def setting_back(sample: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `_sample` of vLLM's runner: generators whose token will be dropped are left as they were."""

    def wrapped(runner: Any, *args: Any, **kwargs: Any) -> Any:
        generators = runner.input_batch.generators
        for row, each in generators.items():
            generators[row] = each.generator if isinstance(each, SetBack) else each
        dropped = runner.discard_request_mask.np[: runner.input_batch.num_reqs].nonzero()[0].tolist()
        before = {row: generators[row].get_state() for row in dropped if row in generators}
        sampled = sample(runner, *args, **kwargs)
        for row, state in before.items():
            generators[row].set_state(state)
            generators[row] = SetBack(generators[row])
        return sampled

    return wrapped


if (_on_cpus := sys.modules.get("vllm.v1.worker.cpu_model_runner")) is not None:  # the worker is one of CPUs
    _on_cpus.CPUModelRunner._sample = setting_back(_on_cpus.CPUModelRunner._sample)

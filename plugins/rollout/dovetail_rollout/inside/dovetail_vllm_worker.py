"""What Dovetail adds to vLLM's worker: it reads all weights in place.

vLLM 0.32 on a CPU keeps a packed copy of the output embedding. If that is tied to the input embedding, its own
`reload_weights` updates the shared tensor but not the packed copy, so that logits use the old embedding.
"""

from __future__ import annotations

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

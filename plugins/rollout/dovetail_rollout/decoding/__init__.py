"""How the vanilla engine decodes: batching of completions, compiled steps, sampling from logits, stop strings."""

"""How the vanilla engine decodes: batching, compiled steps, sampling from logits, and stop strings."""

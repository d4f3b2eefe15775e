"""The decoder of the vanilla engine: batching, compiled steps, sampling from logits, and stop strings."""

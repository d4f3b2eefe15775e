"""The layers of decoders. All of them work on 2-D activations with one row per token."""

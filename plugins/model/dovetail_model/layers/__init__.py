"""The layers that decoders consist of, each a formula on 2-D activations with one row per token."""

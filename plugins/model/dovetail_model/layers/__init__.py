"""Layers that architectures are put together from: each a formula on 2-D activations, one row per token."""

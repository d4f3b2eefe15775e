"""Adapters: a few weights that are trained instead of the model's own."""

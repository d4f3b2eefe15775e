"""Adapters: small sets of weights that are trained instead of the model's own."""

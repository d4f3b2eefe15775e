"""Adapters: few weights that are trained in place of the model's."""

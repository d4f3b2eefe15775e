"""Optimizers, one file each: a learning rate to an `optax.GradientTransformation`."""

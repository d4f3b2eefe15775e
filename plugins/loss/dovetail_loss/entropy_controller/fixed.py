"""Entropy controller `fixed`: the KL controller of that name, which does not ask whose coefficient it is."""

from dovetail_loss.kl_controller.fixed import Fixed

__all__ = ["Fixed"]

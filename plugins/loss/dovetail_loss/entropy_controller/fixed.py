"""Entropy controller `fixed`: the same class as the KL controller, since a constant coefficient works for both."""

from dovetail_loss.kl_controller.fixed import Fixed

__all__ = ["Fixed"]

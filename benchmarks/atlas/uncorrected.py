"""A single-file plugin: the correction that corrects nothing, as the control of those that do."""

import jax.numpy as jnp

import dovetail


@dovetail.hookimpl
def dovetail_components(register):
    register("correction", "uncorrected", "uncorrected:uncorrected")


def uncorrected(rollout_logps, mask):
    """Every token has the weight 1, w_it = 1, whatever the sampler's probability was."""
    return jnp.ones_like(rollout_logps), mask

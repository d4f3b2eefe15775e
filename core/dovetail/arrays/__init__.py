"""Array operations that the formulas of components share, and that are easy to get wrong.

`from dovetail.arrays import masked`. Masking that is safe against NaN, precision, statistics of groups and turns, sums
over the rest of a completion, whitening, and importance ratios. This package imports jax, so import it in the modules
of components, not in the `__init__` of a plugin.
"""

from dovetail.arrays.groups import Groups
from dovetail.arrays.masks import (
    at_finite,
    clip,
    full_precision,
    in_units_of,
    indicator,
    masked,
    mean_over_tokens,
    per_token,
)
from dovetail.arrays.ratios import (
    LOG_RATIO_BOUND,
    LOG_SEQUENCE_RATIO_BOUND,
    Level,
    bounded,
    importance_ratio,
    log_ratio,
)
from dovetail.arrays.traces import gae_trace, returns_to_go
from dovetail.arrays.turns import Turns, carried, latest
from dovetail.arrays.whitening import whiten

__all__ = [
    "LOG_RATIO_BOUND",
    "LOG_SEQUENCE_RATIO_BOUND",
    "Groups",
    "Level",
    "Turns",
    "at_finite",
    "bounded",
    "carried",
    "clip",
    "full_precision",
    "gae_trace",
    "importance_ratio",
    "in_units_of",
    "indicator",
    "latest",
    "log_ratio",
    "masked",
    "mean_over_tokens",
    "per_token",
    "returns_to_go",
    "whiten",
]

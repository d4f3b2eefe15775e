"""Causal self-attention with grouped queries, over a row's own tokens and a prefix shared with other rows.

`attend` defines the result. For each forward pass, `choice` selects the implementation by platform, model, and numbers
of tokens and keys. All implementations give the same values and gradients up to rounding.
"""

from dovetail_model.attention.attend import IMPLEMENTATIONS, attend
from dovetail_model.attention.layer import Attention
from dovetail_model.attention.sight import Places, Segment, Sight, by_head
from dovetail_model.attention.view import View, positions, views

__all__ = [
    "IMPLEMENTATIONS",
    "Attention",
    "Places",
    "Segment",
    "Sight",
    "View",
    "attend",
    "by_head",
    "positions",
    "views",
]

"""Aggregations, one file each: mask to weights; the loss is ∑ w·loss over the whole mini-batch."""

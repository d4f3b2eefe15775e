"""Reward shapings, one file each: they change the rewards of single tokens."""

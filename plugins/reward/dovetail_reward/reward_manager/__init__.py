"""Reward managers, one file each: they combine the table of rewards into one score per completion."""

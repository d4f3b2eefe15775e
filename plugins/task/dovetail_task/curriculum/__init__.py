"""Curricula, one file each: they choose the next prompts."""

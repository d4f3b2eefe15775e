"""Evaluation on held-out examples."""

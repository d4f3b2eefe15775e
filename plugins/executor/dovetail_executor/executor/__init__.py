"""Executors: where the trials of a sweep run."""

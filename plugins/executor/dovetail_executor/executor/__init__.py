"""Executors, which run the trials of a sweep."""

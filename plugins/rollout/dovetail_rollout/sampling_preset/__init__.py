"""Sampling presets fill those settings of `sampling.*` or `eval.*` that no line of a config sets.

A line that sets one refines the preset, wherever it stands. On the command line, `--sampling NAME` overrides both.
"""

"""Sinks, one file each."""

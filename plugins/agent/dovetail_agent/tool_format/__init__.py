"""Formats of calls, one file each."""

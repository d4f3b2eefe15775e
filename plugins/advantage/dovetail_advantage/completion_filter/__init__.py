"""Completion filters, one file each."""

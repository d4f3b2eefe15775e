"""Pools, one file each."""

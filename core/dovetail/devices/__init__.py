"""The placement of arrays on devices, their memory, and functions that are compiled once for many runs."""

"""Samplers, which choose the settings that a sweep tries."""

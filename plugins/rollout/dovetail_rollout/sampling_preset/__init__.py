"""Sampling presets: values for the settings of the same names, `sampling.*` or `eval.*`, where nobody sets them."""

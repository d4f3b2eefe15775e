"""Where arrays are, what they take, and functions that are compiled once for many runs."""

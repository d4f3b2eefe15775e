"""Training. Read `loop.py` first, from top to bottom."""

"""Agent loops, one file each."""

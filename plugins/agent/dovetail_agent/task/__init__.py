"""Tasks of several turns, with demonstrations, one file each."""

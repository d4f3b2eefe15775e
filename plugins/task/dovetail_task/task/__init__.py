"""Tasks, one file each."""

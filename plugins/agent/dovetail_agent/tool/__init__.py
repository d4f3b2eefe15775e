"""Tools, one file each."""

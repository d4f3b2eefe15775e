"""Value losses, one file each."""

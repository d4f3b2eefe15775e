"""Components of kind tool, one file each."""

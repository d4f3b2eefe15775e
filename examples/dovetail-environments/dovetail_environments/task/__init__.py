"""Components of kind task, one file each."""

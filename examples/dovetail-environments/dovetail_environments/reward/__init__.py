"""Components of kind reward, one file each."""

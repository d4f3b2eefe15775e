"""Controllers of the KL coefficient, one file each."""

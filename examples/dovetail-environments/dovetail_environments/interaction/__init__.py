"""Components of kind interaction, one file each."""

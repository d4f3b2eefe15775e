"""Group filters, one file each."""

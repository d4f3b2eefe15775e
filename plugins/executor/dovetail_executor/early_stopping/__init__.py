"""Rules by which trials of a sweep are stopped early."""

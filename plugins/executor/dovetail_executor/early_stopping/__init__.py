"""Rules for stopping trials of a sweep early."""

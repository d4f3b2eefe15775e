"""Checks that components pass, ours and third parties' alike; one module for each kind that needs more than arrays."""

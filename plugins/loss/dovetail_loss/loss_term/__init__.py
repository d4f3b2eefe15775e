"""Terms that are added to the policy loss, each with a coefficient."""

"""What the author of a plugin works with: a package to begin with, a doctor, and the conformance suite."""

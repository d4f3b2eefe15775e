"""What the author of a plugin works with: a package to begin with, and what is installed and what ails it."""

"""A run's folder: its files, how they are written and read, and the checks before a run resumes."""

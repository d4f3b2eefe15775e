"""A run's folder: what is written there, checked when a run goes on, and read again."""

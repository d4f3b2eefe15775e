"""What a step would take with another staleness, other groups or more engines, from what a run has recorded."""

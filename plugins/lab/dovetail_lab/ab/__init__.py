"""A/B tests of configurations: the statistics, the pre-registration, the arms, and the report."""

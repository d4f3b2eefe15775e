"""Which groups are worth training on."""

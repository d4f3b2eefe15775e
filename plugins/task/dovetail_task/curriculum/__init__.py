"""Which prompts come next."""

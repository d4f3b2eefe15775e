"""What a step does on the host: prompts, completions, episodes and rewards."""

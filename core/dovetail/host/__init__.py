"""The parts of a step that run on the host: prompts, completions, episodes and rewards."""

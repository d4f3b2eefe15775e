"""Opening a policy, completing prompts with it and evaluating it: what the commands and Python share."""

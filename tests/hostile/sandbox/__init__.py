"""What model-written code may try against the sandbox."""

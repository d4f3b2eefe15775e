"""Commands that look at components and configs; they import jax only if a config has to be read."""

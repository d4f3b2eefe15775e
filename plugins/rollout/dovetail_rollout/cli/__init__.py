"""Commands on the engines of a run."""

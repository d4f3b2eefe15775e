"""`dovetail doctor`: what the machine has, what JAX sees of it, and what is slow here and why."""

"""`dovetail doctor`: the machine's hardware, what JAX can use of it, and reasons why something is slow."""

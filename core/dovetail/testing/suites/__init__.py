"""The checks, in modules by what they look at; `dovetail.testing.checks` imports them all."""

"""The checks, in modules by what they look at; `dovetail_kit.conformance.checks` imports them all."""

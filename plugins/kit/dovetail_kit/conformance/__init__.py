"""The checks that every component must pass, built-in or third-party: `pytest --dovetail-dist=NAME` runs them.

`check` defines a check, and `suites` contains all of them, grouped by topic; `subject`, `batch` and `case` are the
objects that they examine; `verdict` runs a check, and `session` turns checks into pytest items. Only the suites import
jax.
"""

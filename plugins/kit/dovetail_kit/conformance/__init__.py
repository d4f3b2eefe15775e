"""The checks that every component must pass, ours and third parties' alike: `pytest --dovetail-dist=NAME` runs them.

`check` says what a check is and `suites` holds them all, by what they look at; `subject`, `batch` and `case` are what
they look at; `verdict` carries one out, and `session` makes pytest items of them. Nothing here imports jax until the
suites do.
"""

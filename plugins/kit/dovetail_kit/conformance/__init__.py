"""What components must do, ours and third parties' alike: `pytest --dovetail-dist=NAME` asks all of a distribution.

Nothing here imports jax; the modules of `suites`, which `checks` imports, do.
"""

from __future__ import annotations

from dovetail_kit.conformance.check import Check, Failed, Inapplicable, applicable, checks

__all__ = ["Check", "Failed", "Inapplicable", "applicable", "checks"]

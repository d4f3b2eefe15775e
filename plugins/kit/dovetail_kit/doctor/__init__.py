"""`dovetail plugin doctor`: find problems of a plugin without training with it."""

from __future__ import annotations

from dovetail_kit.doctor.distribution import examine
from dovetail_kit.doctor.finding import LEVELS, Finding
from dovetail_kit.doctor.methods import examine_methods

__all__ = ["LEVELS", "Finding", "examine", "examine_methods"]

"""The planner: from the chosen components to the work of a step."""

from dovetail.plan.glossary import FIELDS, FieldInfo
from dovetail.plan.plan import Entry, Plan
from dovetail.plan.planner import Reader, plan

__all__ = ["FIELDS", "Entry", "FieldInfo", "Plan", "Reader", "plan"]

"""The planner: derives the work of a step from the chosen components."""

from dovetail.plan.needs import Planner, is_quantity
from dovetail.plan.plan import Call, Entry, Pass, Plan
from dovetail.plan.planner import plan_step

__all__ = ["Call", "Entry", "Pass", "Plan", "Planner", "is_quantity", "plan_step"]

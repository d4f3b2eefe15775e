"""The kinds of components that the engine opens, the stages at which a step calls them, and the fields they share.

To open a kind is one record, here or in a plugin (`dovetail_kinds`): the setting that chooses its components, the
planner's checks, the call, the conformance checks, the scaffold and the documentation follow from it.
"""

from dovetail.kinds import algorithm, data, episodes, model, observers, rollout
from dovetail.kinds.fields import FIELDS, FieldInfo
from dovetail.kinds.kind import Kind
from dovetail.kinds.stages import STAGE, STAGES, Stage, at, comes_before

KINDS = (*algorithm.KINDS, *data.KINDS, *rollout.KINDS, *episodes.KINDS, *model.KINDS, *observers.KINDS)

__all__ = ["FIELDS", "KINDS", "STAGE", "STAGES", "FieldInfo", "Kind", "Stage", "at", "comes_before"]

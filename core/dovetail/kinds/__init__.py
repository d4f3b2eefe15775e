"""The built-in kinds of components, the stages at which a step calls them, and the batch fields they share.

One record, here or in a plugin (`dovetail_kinds`), defines a kind. The setting that chooses its components, the
planner's checks, the calls, the conformance checks, the scaffold and the documentation all follow from that record.
"""

from dovetail.kinds import algorithm, data, episodes, model, observers, rollout
from dovetail.kinds.fields import FIELDS, FieldInfo
from dovetail.kinds.kind import Kind
from dovetail.kinds.stages import STAGE, STAGES, Stage, at, comes_before

KINDS = (*algorithm.KINDS, *data.KINDS, *rollout.KINDS, *episodes.KINDS, *model.KINDS, *observers.KINDS)

__all__ = ["FIELDS", "KINDS", "STAGE", "STAGES", "FieldInfo", "Kind", "Stage", "at", "comes_before"]

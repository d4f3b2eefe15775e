"""The built-in kinds of components, the stages at which a step calls them, and the batch fields they share.

One record, here or in a plugin (`dovetail_kinds`), defines a kind. The setting that chooses its components, the
planner's checks, the calls, the conformance checks, the scaffold and the documentation all follow from that record.
"""

from dovetail.kinds import algorithm, data, episodes, model, observers, rollout, sizing
from dovetail.kinds.fields import FIELDS, FieldInfo
from dovetail.kinds.kind import Around, Kind
from dovetail.kinds.stages import STAGE, STAGES, Stage, comes_before

KINDS = tuple(
    kind for module in (algorithm, data, rollout, episodes, model, observers, sizing) for kind in module.KINDS
)

__all__ = ["FIELDS", "KINDS", "STAGE", "STAGES", "Around", "FieldInfo", "Kind", "Stage", "comes_before"]

"""Claims about loss masks and filters: what is stale is kept no sooner, and a larger share keeps no fewer."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.subject import Subject, allows

FILTERS: Final = ("completion_filter", "loss_mask")
SHARE: Final = re.compile(r"^(fraction|(keep|kept)_(fraction|ratio|share))$")


@check(*FILTERS, reads=["staleness"], fix="Keep what is fresh: staleness <= bound.")
def staleness_does_not_help(subject: Subject) -> None:
    """A token is kept, or weighs more, no sooner for having been sampled by older weights.

    With the comparison inverted, an asynchronous run trains on what is stale, and on nothing else.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    before, stalest = None, 0
    for staleness in (0, 1, 2, 4, 16, 256):
        stale = np.where(fields["mask"], staleness, 0).astype(fields["staleness"].dtype)
        kept = case.run(fields | {"staleness": stale}).value.astype(np.float32)
        if before is not None and (kept > before + 1e-6).any():
            count = int((kept > before + 1e-6).sum())
            raise Failed(
                f"where all tokens are {staleness} updates old, {count} are kept, or weigh more, that are not where"
                f" they are {stalest} old"
            )
        before, stalest = kept, staleness


def _shares(component: Component) -> list[str]:
    return [name for name in component.params if SHARE.search(name)]


@check(*FILTERS, when=lambda component: bool(_shares(component)), fix="Keep what is above the (1 - fraction)-quantile.")
def a_larger_share_keeps_no_fewer(subject: Subject) -> None:
    """A larger number called `fraction` keeps no fewer tokens.

    With the quantile turned round, a fifth of the tokens becomes four fifths.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name in _shares(subject.component):
        values = [value for value in (0.05, 0.2, 0.8, 0.95) if allows(subject.component, name, value)]
        counts = [
            int((case.run(fields, subject.floats | {name: np.float32(value)}).value != 0).sum())
            for value in (values if name in subject.floats else ())
        ]
        if (np.diff(counts) < 0).any():
            told = ", ".join(f"{count} at {value:g}" for value, count in zip(values, counts, strict=True))
            raise Failed(f"of {fields['mask'].sum()} tokens it keeps by '{name}': {told}")

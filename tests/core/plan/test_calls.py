"""A term of the loss is left out if its coefficient is zero and nothing will change that: one rule for all of them."""

from typing import Any, ClassVar

import attrs
import pytest

import dovetail
from dovetail.config import load


@attrs.frozen(kw_only=True)
class Adding:
    """A controller that may begin at zero."""

    def init(self, coef: float) -> Any:
        return coef

    def coef(self, state: Any) -> Any:
        return state

    def update(self, state: Any, observed: Any, samples: Any) -> Any:
        return state + 0.1


@attrs.frozen(kw_only=True)
class Multiplying(Adding):
    """A controller that would stay at zero."""

    declares: ClassVar[dict[str, Any]] = {"keeps_zero": True}

    def update(self, state: Any, observed: Any, samples: Any) -> Any:
        return state * 1.1


TERMS = ("kl", "entropy")


@pytest.fixture(autouse=True)
def registered():
    for term in TERMS:
        for controller in (Adding, Multiplying):
            dovetail.register(f"{term}_controller", controller.__name__.lower(), controller)


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize(
    ("coefficient", "controller", "computed"),
    [
        (0.0, "fixed", False),
        (0.0, "multiplying", False),
        (0.0, "adding", True),
        (0.1, "fixed", True),
        (0.1, "multiplying", True),
    ],
)
def test_a_term_is_computed_if_its_coefficient_is_or_may_become_other_than_zero(
    term: str, coefficient: float, controller: str, *, computed: bool
):
    plan = load(None, [f"train.{term}_coef={coefficient}", f"train.{term}_controller={controller}"]).plan
    assert plan is not None
    assert (term in {call.kind.name for call in plan.calls}) is computed
    if term == "kl":
        assert ("reference" in plan.roles) is computed

"""The models of a step by role, and how the name of a field says which model computed it on what.

`old_entropy` is the entropy under the policy at collection, `ref_logps` the log-probabilities under the reference,
`teacher_answer_logps` those that the role `teacher` gives to the task's answers. A name without a prefix is the policy
being trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

POLICY: Final = "policy"
CRITIC: Final = "critic"
REFERENCE: Final = "reference"
ROLLOUT: Final = "rollout"
"""The sampler: no role with fields of its own, but it may have devices."""

OLD: Final = "old_"
"""The policy at collection: the weights that sampled."""


@attrs.frozen(kw_only=True)
class Inputs:
    """Tokens on which models are evaluated, by the names of their fields.

    `shared` says that the rows of a group have the same, so that they are computed once; `own_prompt` that their
    prompts are not those of the completions.
    """

    name: str
    prefix: str
    shared: bool = False
    own_prompt: bool = False

    @property
    def fields(self) -> dict[str, str]:
        """The batch fields behind what a model reads."""
        prompt = self.prefix if self.own_prompt else ""
        return {
            "prompt_tokens": f"{prompt}prompt_tokens",
            "prompt_mask": f"{prompt}prompt_mask",
            "tokens": f"{self.prefix}tokens",
            "mask": f"{self.prefix}mask",
        }


COMPLETIONS: Final = Inputs(name="completions", prefix="")
ANSWERS: Final = Inputs(name="answers", prefix="answer_", shared=True)
DEMONSTRATIONS: Final = Inputs(name="demonstrations", prefix="demo_", shared=True, own_prompt=True)
INPUTS: Final = {each.name: each for each in (COMPLETIONS, ANSWERS, DEMONSTRATIONS)}

WEIGHTS_OF: Final = {each.fields["mask"]: f"{each.prefix}weights" for each in INPUTS.values()} | {
    "observed": "observed_weights"
}
"""What a term of the loss may be about, by the mask of those tokens, and where the weights of the aggregation are."""


@attrs.frozen(kw_only=True)
class Quantity:
    """What the name of a field says: a field component, evaluated by a model on some inputs.

    `live` is the policy being trained, which is differentiable and exists in the update only.
    """

    field: str
    name: str
    role: str
    inputs: str
    live: bool


def prefix_of(role: str) -> str:
    """Return what begins the names of a role's fields."""
    return {POLICY: OLD, REFERENCE: "ref_"}.get(role, f"{role}_")


def logits_of(role: str) -> str:
    """Return the name under which a field reads a role's logits beside the policy's own."""
    return f"{prefix_of(role)}logits"


def parse(field: str, roles: Iterable[str], is_quantity: Callable[[str], bool]) -> Quantity | None:
    """Read a field's name; None if it is not a quantity of a forward pass.

    >>> parse("ref_answer_logps", ["reference"], {"logps"}.__contains__)
    Quantity(field='ref_answer_logps', name='logps', role='reference', inputs='answers', live=False)
    """
    for prefix, role, live in _prefixes(roles):
        if not field.startswith(prefix):
            continue
        for inputs in INPUTS.values():
            name = field.removeprefix(prefix).removeprefix(inputs.prefix)
            if is_quantity(name) and field == prefix + inputs.prefix + name:
                return Quantity(field=field, name=name, role=role, inputs=inputs.name, live=live)
    return None


def spellings(quantity: str, roles: Iterable[str]) -> Iterator[str]:
    """Yield the names of all fields that a quantity makes."""
    for prefix, _, _ in _prefixes(roles):
        for inputs in INPUTS.values():
            yield prefix + inputs.prefix + quantity


def _prefixes(roles: Iterable[str]) -> Iterator[tuple[str, str, bool]]:
    yield "", POLICY, True
    yield OLD, POLICY, False
    for role in roles:
        yield prefix_of(role), role, False

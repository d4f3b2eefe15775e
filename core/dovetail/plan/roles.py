"""The models of a step, by role, and field names that say which model computed a field on which tokens.

`old_entropy` is the entropy of the policy at collection, `ref_logps` holds log-probabilities under the reference, and
`teacher_answer_logps` those of the task's answers under the role `teacher`. A name without a prefix refers to the
policy being trained.
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
"""The prefix for the policy at collection, before the updates of the step."""


@attrs.frozen(kw_only=True)
class Inputs:
    """Tokens on which models are evaluated, identified by the names of their fields.

    `shared` means that all rows of a group have the same tokens, which are evaluated only once. `own_prompt` means that
    their prompts differ from those of the completions.
    """

    name: str
    prefix: str
    shared: bool = False
    own_prompt: bool = False

    @property
    def fields(self) -> dict[str, str]:
        """The batch field for each array that a model reads."""
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
"""The field with the aggregation's weights, for each mask of tokens that a term of the loss can be about."""


@attrs.frozen(kw_only=True)
class Quantity:
    """The meaning of a field's name: a field component, evaluated by a model on some inputs.

    Attributes:
        field: the name of the field.
        name: the name of the field component.
        role: the model.
        inputs: the tokens, a name in `INPUTS`.
        live: whether it is computed by the policy being trained, differentiably, and so exists only in the update.
    """

    field: str
    name: str
    role: str
    inputs: str
    live: bool


def prefix_of(role: str) -> str:
    """Return the prefix of the names of a role's fields."""
    return {POLICY: OLD, REFERENCE: "ref_"}.get(role, f"{role}_")


def logits_of(role: str) -> str:
    """Return the name under which a field component reads a role's logits."""
    return f"{prefix_of(role)}logits"


def parse(field: str, roles: Iterable[str], is_quantity: Callable[[str], bool]) -> Quantity | None:
    """Parse the name of a field; None if it is not computed in a forward pass.

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
    """Yield the names of all fields that a field component computed in a forward pass provides."""
    for prefix, _, _ in _prefixes(roles):
        for inputs in INPUTS.values():
            yield prefix + inputs.prefix + quantity


def _prefixes(roles: Iterable[str]) -> Iterator[tuple[str, str, bool]]:
    yield "", POLICY, True
    yield OLD, POLICY, False
    for role in roles:
        yield prefix_of(role), role, False

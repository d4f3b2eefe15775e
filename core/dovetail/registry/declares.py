"""Machine-readable claims about the properties of a component."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack

from dovetail.errors import nearest

Target = TypeVar("Target", bound=Callable[..., Any])


class Claims(TypedDict, total=False):
    """The claims that a component can make; `docs/conformance.md` explains each one and the kinds it applies to."""

    excludes: Sequence[str]
    per_reward: Sequence[str]
    programs: Sequence[str]
    files: Sequence[str]
    idle: Sequence[str]
    on_policy_gradient: bool
    pessimistic: bool
    regularised: bool
    averaged_by: str
    whole_groups: bool
    surrogate: bool
    about: str
    shift_invariant: bool
    zero_mean: bool
    whitened: bool
    across_groups: bool
    by_position: bool
    by_turn: bool
    beyond_scores: bool
    not_monotone: bool
    unbiased_value: bool
    unbiased_gradient: bool
    zero_expected_gradient: bool
    non_negative: bool
    sums_to_one: bool
    leaves_out: bool
    neither_mean_nor_sum: bool
    scales: bool
    constant: bool
    keeps_zero: bool
    signed: bool
    systematic: bool
    absent_is_zero: bool
    undefined_at_rest: bool
    unnormalised: bool
    noisy: bool
    scheduled: bool
    absolute: bool
    needs_all: bool
    needs_first: bool
    compares: bool
    range: tuple[float, float]
    examples: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
    abstains: bool
    any_answer: bool
    last_answer: bool
    deterministic: bool
    repeats: bool
    elsewhere: bool
    newest_only: bool
    loaded: bool
    beyond_low_rank: bool
    low_rank_only: str
    own_process: bool
    turns: bool
    batch_invariant: bool
    vocabulary_logps: bool
    reports_logps: bool
    reads_examples: bool
    versions: bool
    in_flight: bool
    placed: bool
    slots: int
    alphabet: str
    keeps_support: int
    keeps_choices: bool


def declares(
    *,
    settings: Mapping[str, Any] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    own: Mapping[str, Any] | None = None,
    **claims: Unpack[Claims],
) -> Callable[[Target], Target]:
    """Attach claims to a component as its attribute `declares`; the conformance suite of `dovetail_kit` checks them.

    Args:
        settings: hyperparameters to check the component with, where it has no defaults or they are unsuitable.
        expected_failures: checks that it is known to fail, each with the reason. If one passes, that is an error.
        own: a plugin's own claims, about components of a kind that it opens.
        claims: by name, as listed in `docs/conformance.md`: `on_policy_gradient=True`, `range=(0, 1)`, ...

    Raises:
        TypeError: if a claim is unknown, with the nearest spelling; or made twice, by two decorators.

    >>> @declares(unbiased_value=True)
    ... def estimator(): ...
    >>> estimator.declares["unbiased_value"]
    True
    """
    given = {"settings": settings, "expected_failures": expected_failures}
    unknown = [name for name in claims if name not in Claims.__annotations__]
    if unknown:
        raise TypeError(
            f"declares() has no claim '{unknown[0]}'.{nearest(unknown[0], Claims.__annotations__)} Those that are not"
            " Dovetail's go into own={...}"
        )
    facts = {**(own or {}), **claims, **{name: value for name, value in given.items() if value is not None}}

    def attach(target: Target) -> Target:
        earlier = getattr(target, "__dict__", {}).get("declares", {})  # not those of a class that it inherits from
        twice = sorted({*facts} & {*earlier})
        if twice and not hasattr(target, "__wrapped__"):  # functools.wraps takes over the claims of another function
            raise TypeError(f"'{twice[0]}' is declared twice for {target.__qualname__}; leave one of them out")
        target.declares = {**earlier, **facts}  # pyright: ignore[reportFunctionMemberAccess]
        return target

    return attach


def misspelt(facts: Any) -> str:
    """Return an error message about claims that are not a mapping, or the first that looks misspelt; empty if right.

    `declares` may be a mapping that a class writes itself, and may hold a plugin's own claims: an unknown name is
    therefore an error only if it resembles a known one.

    >>> misspelt({"batch_invariant": True, "proofs": 3})
    ''
    >>> misspelt({"batch_invariance": True})
    "declares 'batch_invariance'. Did you mean 'batch_invariant'?"
    """
    if not isinstance(facts, Mapping):
        return f"`declares` is {facts!r:.80}; write @dovetail.declares(CLAIM=VALUE), or a dict"
    for name in facts:
        meant = nearest(name, Claims.__annotations__)
        if name not in (*Claims.__annotations__, "settings", "expected_failures") and meant:
            return f"declares '{name}'.{meant}"
    return ""

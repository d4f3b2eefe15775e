"""Models on devices of their own compute at the same time as the policy: nothing is awaited before all have begun."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from dovetail.training import beside
from dovetail.training.beside import Beside

APART = {"reference": "its own", "critic": "others"}
"""By role, its devices; all other roles are with the policy."""


class Begun(dict):
    """What a dispatched program returns: its fields are there once somebody has waited for it."""


class Recorded:
    """Devices that record what happens on them, in order."""

    def __init__(self, name, happened, apart=()):
        self.name, self.happened = name, happened
        self.apart = {role: Recorded(APART[role], happened) for role in apart}

    def of(self, role):
        return self.apart.get(role, self)

    @contextmanager
    def use(self):
        self.happened.append(f"enter {self.name}")
        yield
        self.happened.append(f"leave {self.name}")

    def rows(self, tree):
        if isinstance(tree, Begun):
            self.happened.append(f"await {', '.join(tree)}")
        return dict(tree) | {"on": self.name}

    def whole(self, tree):
        return tree


def of_roles(monkeypatch, roles, apart):
    """Return the passes of these roles, and a list of what happens in them."""
    happened = []

    def share(roles):
        def program(models, rows, hyper):
            happened.append(f"dispatch {', '.join(roles)} with {', '.join(models)} and rows on {rows['on']}")
            return Begun({f"{role}_logps": hyper for role in roles}), {}

        return program

    monkeypatch.setattr(beside, "Scoring", lambda *, roles, **rest: roles)
    monkeypatch.setattr(beside, "share", share)
    passes = [SimpleNamespace(role=role, beside=(), inputs="completions") for role in roles]
    algorithm = SimpleNamespace(plan=SimpleNamespace(passes_of=lambda live: [] if live else passes))
    devices = Recorded("the policy's", happened, apart)
    return Beside.of(algorithm, {}, devices), happened  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("apart", [("reference",), ("critic",), ("reference", "critic")])
def test_all_passes_begin_before_one_is_awaited(monkeypatch, apart):
    roles = ("policy", "reference", "critic", "judge")
    passes, happened = of_roles(monkeypatch, roles, apart)
    assert passes is not None
    fields, _ = passes(dict.fromkeys(roles, ()), {}, {"kl_coef": 0.5})

    with_policy = ", ".join(role for role in roles if role not in apart)
    groups = [(role, APART[role]) for role in roles if role in apart] + [(with_policy, "the policy's")]
    dispatched = [
        what
        for names, devices in groups
        for what in (f"enter {devices}", f"dispatch {names} with {names} and rows on {devices}", f"leave {devices}")
    ]
    awaited = [f"await {', '.join(f'{role}_logps' for role in names.split(', '))}" for names, _ in groups]
    assert happened == [*dispatched, *awaited]
    assert fields == {f"{role}_logps": {"kl_coef": 0.5} for role in roles} | {"on": "the policy's"}


def test_models_that_are_all_with_the_policy_need_no_passes_of_their_own(monkeypatch):
    assert of_roles(monkeypatch, ("policy", "reference"), ())[0] is None

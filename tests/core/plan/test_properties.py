"""Properties of every plan, whatever the components: checked on random calls that read random fields."""

import random

import pytest

from dovetail.kinds import KINDS, STAGE
from dovetail.plan import Call, Planner
from dovetail.plan.roles import CRITIC, prefix_of
from dovetail.registry import Component, Origin, Registry

ORIGIN = Origin("acme", "1", "acme")
KIND = {kind.name: kind for kind in KINDS}
BEFORE = (
    "scores",
    "group_ids",
    "mask",
    "token_rewards",
    "old_logps",
    "ref_logps",
    "entropy",
    "greedy_scores",
    "role_ids",
)
BEFORE += ("values", "ref_entropy", "surprise")
DURING = (*BEFORE, "logps", "advantages", "returns", "old_values", "sharpness")


def logps(logits, tokens):
    """Quantity."""


def entropy(logits):
    """Quantity."""


def surprise(old_logps, mask):
    """Derived at whatever level it is read."""


def sharpness(logps, mask):
    """Derived from the policy being trained."""


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.add_kind(KIND["field"], ORIGIN)
    for function in (logps, entropy, surprise, sharpness):
        made.add("field", function.__name__, function, origin=ORIGIN)
    return made


def component(name: str, fields: list[str]) -> Component:
    """Return a component that reads these fields."""
    space: dict = {}
    exec(f"def {name}({', '.join(fields)}): ...", space)
    return Component(kind="advantage", name=name, target=space[name], origin=ORIGIN)


def calls(seed: int) -> list[Call]:
    """Return any numbers of estimators and losses; the planner does not require exactly one of each."""
    chance = random.Random(seed)
    found = []
    for number in range(chance.randint(1, 6)):
        update = chance.random() < 0.5
        kind = KIND["policy_loss" if update else "advantage"]
        fields = chance.sample(DURING if update else BEFORE, chance.randint(1, 4))
        made = component(f"c{number}", fields)
        found.append(Call(path=f"role{number}", kind=kind, component=made, stage=STAGE[kind.stage], term=update))
    return found


def is_update(call: Call) -> bool:
    return call.stage.name == "loss_terms"


def make(chosen, registry, on_policy=False):
    planner = Planner(registry=registry, on_policy=on_policy)
    for call in chosen:
        planner.read(call)
    return planner.finish(chosen)


def evaluated(found) -> set[str]:
    """Return the fields that forward passes compute."""
    return {
        ("" if each.live else "old_" if each.role == CRITIC else prefix_of(each.role)) + name
        for each in found.passes
        for name in each.quantities
    }


def work(found) -> set[str]:
    """Return everything that a step has to compute besides the components themselves."""
    drawn = {name for name in ("greedy_scores", "role_ids") if name in found}
    return evaluated(found) | drawn | set(found.roles) | set(found.derived)


@pytest.mark.parametrize("seed", range(60))
def test_every_read_is_planned_and_nothing_is_planned_that_nobody_reads(registry, seed):
    chosen = calls(seed)
    found = make(chosen, registry)
    entries = {entry.field: entry for entry in found.entries}
    for call in chosen:
        for field in call.reads:
            names = {field, f"old_{field}"}  # at collection, a bare quantity is that of the policy that sampled
            assert any(call.label in entries[name].readers for name in names & entries.keys()), field
    assert all(entry.readers for entry in found.entries)
    read = set(entries)
    assert evaluated(found) <= read
    assert (CRITIC in found.roles) == bool(read & {"values", "old_values"})
    assert ("reference" in found.roles) == bool(read & {"ref_logps", "ref_entropy"})
    assert set(found.derived) == read & {"surprise", "sharpness"}


@pytest.mark.parametrize("seed", range(60))
def test_one_more_reader_takes_no_work_away(registry, seed):
    chosen = calls(seed)
    less, more = make(chosen[:-1], registry), make(chosen, registry)
    assert work(less) <= work(more)


@pytest.mark.parametrize("seed", range(60))
def test_an_on_policy_step_saves_the_pass_at_collection_or_changes_nothing(registry, seed):
    chosen = calls(seed)
    off, on = make(chosen, registry), make(chosen, registry, on_policy=True)
    assert work(off) - work(on) <= {"old_logps"}
    assert ("old_logps" in work(off) - work(on)) == bool(on.detached)
    early = [call for call in chosen if not is_update(call) and {"old_logps", "surprise"} & set(call.reads)]
    assert not (on.detached and early)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_calls_changes_only_the_order(registry, seed):
    chosen = calls(seed)
    back = make(chosen[::-1], registry)
    assert work(back) == work(make(chosen, registry))
    assert {e.field: sorted(e.readers) for e in back.entries} == {
        e.field: sorted(e.readers) for e in make(chosen, registry).entries
    }

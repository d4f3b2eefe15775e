"""What holds for every plan, whatever the components: checked on random readers of random fields."""

import random

import pytest

from dovetail.plan import Reader, plan
from dovetail.registry import Component, Origin, Registry

ORIGIN = Origin("acme", "1", "acme")
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
    made.add_kind("field", "", ORIGIN)
    for function in (logps, entropy, surprise, sharpness):
        made.add("field", function.__name__, function, origin=ORIGIN)
    return made


def component(name: str, fields: list[str]) -> Component:
    """A component whose signature is these fields."""
    space: dict = {}
    exec(f"def {name}({', '.join(fields)}): ...", space)
    return Component(kind="advantage", name=name, target=space[name], origin=ORIGIN)


def readers(seed: int) -> list[Reader]:
    chance = random.Random(seed)
    found = []
    for number in range(chance.randint(1, 6)):
        update = chance.random() < 0.5
        fields = chance.sample(DURING if update else BEFORE, chance.randint(1, 4))
        found.append(Reader(role=f"role{number}", component=component(f"c{number}", fields), update=update))
    return found


def make(chosen, registry, on_policy=False):
    return plan(chosen, registry, on_policy=on_policy, has_correction=False, has_schedule=False)


def work(found) -> set[str]:
    """The passes and quantities of a plan, by name."""
    names = {f"{version}.{name}" for version in ("old", "ref", "now") for name in getattr(found, version)}
    return names | {flag for flag in ("critic", "greedy", "roles", "reference") if getattr(found, flag)}


@pytest.mark.parametrize("seed", range(60))
def test_every_read_is_planned_and_nothing_is_planned_that_nobody_reads(registry, seed):
    chosen = readers(seed)
    found = make(chosen, registry)
    entries = {entry.field: entry for entry in found.entries}
    for reader in chosen:
        for field in reader.component.reads:
            names = {field, f"old_{field}"}  # at collection, a bare quantity is that of the policy that sampled
            assert any(reader.label in entries[name].readers for name in names & entries.keys()), field
    assert all(entry.readers for entry in found.entries)
    read = set(entries)
    assert {f"old_{name}" for name in found.old} | {f"ref_{name}" for name in found.ref} <= read
    assert found.critic == bool(read & {"values", "old_values"})
    assert found.greedy == ("greedy_scores" in read)
    assert found.roles == ("role_ids" in read)
    assert found.reference == bool(found.ref)


@pytest.mark.parametrize("seed", range(60))
def test_one_more_reader_takes_no_work_away(registry, seed):
    chosen = readers(seed)
    less, more = make(chosen[:-1], registry), make(chosen, registry)
    assert work(less) <= work(more)


@pytest.mark.parametrize("seed", range(60))
def test_an_on_policy_step_saves_the_pass_at_collection_or_changes_nothing(registry, seed):
    chosen = readers(seed)
    off, on = make(chosen, registry), make(chosen, registry, on_policy=True)
    assert work(off) - work(on) <= {"old.logps"}
    assert ("old.logps" in work(off) - work(on)) == on.old_logps_from_update
    early = [r for r in chosen if not r.update and {"old_logps", "surprise"} & set(r.component.reads)]
    assert not (on.old_logps_from_update and early)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_readers_changes_only_the_order(registry, seed):
    chosen = readers(seed)
    back = make(chosen[::-1], registry)
    assert work(back) == work(make(chosen, registry))
    assert {e.field: sorted(e.readers) for e in back.entries} == {
        e.field: sorted(e.readers) for e in make(chosen, registry).entries
    }

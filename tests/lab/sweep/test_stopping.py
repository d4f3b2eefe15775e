"""A rule is called once for each new value, with curves where higher is better, and its decision is carried out."""

import json
from collections import defaultdict

import pytest
from tests.lab.sweep import stub
from tests.lab.sweep.stub import GOOD, SLOW, sweep

import dovetail
from dovetail.config import Choice, load_experiment
from dovetail.errors import ConfigError, PluginError
from dovetail.registry import Component, Origin
from dovetail_lab.sweep import Stopping, Store

ASKED = []


def rule(curve, others, *, below: float = 0.0) -> bool:
    ASKED.append((curve, others))
    return curve[-1][1] < below


def stopping(below: float, goal: str = "max") -> Stopping:
    component = Component(kind="early_stopping", name="rule", target=rule, origin=Origin("tests", "0", __name__))
    choice = Choice(component=component, params={"below": below})
    return Stopping(rule=choice, metric="score", goal=goal, steps=defaultdict(lambda: 50))


@pytest.fixture
def store(tmp_path) -> Store:
    ASKED.clear()
    planned, about = stub.plan(GOOD, 0.11)
    return Store.create(tmp_path / "s", planned, about)


def record(store: Store, trial, *scores: float) -> None:
    lines = [json.dumps({"phase": "rl", "step": i, "score": score}) for i, score in enumerate(scores)]
    (store.folder(trial) / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def test_a_rule_sees_the_trial_and_the_others(store):
    first, second = store.trials
    record(store, first, 0.1, 0.2)
    record(store, second, 0.3)
    judged = stopping(0.15).judge(store, [first], store.trials)
    assert list(judged) == [(first, "rule at step 0, score 0.1")]
    assert ASKED == [([(0, 0.1)], [[(0, 0.3)]])]


def test_lower_may_be_better(store):
    first, _ = store.trials
    record(store, first, 0.5)
    assert list(stopping(-0.4, "min").judge(store, [first], store.trials)) == [(first, "rule at step 0, score 0.5")]


@pytest.mark.parametrize("goal", ["max", "min"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_the_worst(store, goal, bad):
    first, second = store.trials
    record(store, first, 0.5, bad)
    record(store, second, 0.3, bad)
    worst, sign = -float("inf"), 1 if goal == "max" else -1
    stopped = [trial for trial, _ in stopping(-100, goal).judge(store, [first], store.trials)]
    assert stopped == [first]
    assert ASKED[-1] == ([(0, sign * 0.5), (1, worst)], [[(0, sign * 0.3), (1, worst)]])


def raising(curve, others):
    return curve[99]


def vague(curve, others):
    return "perhaps"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (raising, "raised IndexError: list index out of range"),
        (vague, "returned perhaps; return whether to stop the trial, a bool"),
    ],
)
def test_a_rule_that_is_wrong_is_named_with_its_line(store, target, said):
    component = Component(kind="early_stopping", name="odd", target=target, origin=Origin("acme", "1.2", __name__))
    odd = Stopping(rule=Choice(component=component, params={}), metric="score", goal="max", steps=defaultdict(int))
    record(store, store.trials[0], 0.1)
    with pytest.raises(PluginError, match=rf"early_stopping\.odd of acme 1\.2 .* {said} \[.*test_stopping\.py:\d+\]"):
        list(odd.judge(store, store.trials[:1], store.trials))


def test_a_rule_is_asked_again_only_when_there_is_something_new(store):
    first, second = store.trials
    rules = stopping(0.0)
    for scores in ((0.1,), (0.1,), (0.1, 0.2)):
        record(store, first, *scores)
        list(rules.judge(store, [first, second], store.trials))
    assert [len(curve) for curve, _ in ASKED] == [1, 2]


def test_values_that_came_between_two_looks_are_judged_one_by_one(store):
    """The rule would stop the trial at the first value but not at the second, so both must be judged."""
    first, _ = store.trials
    record(store, first, 0.4, 0.1, 0.3)
    assert list(stopping(0.2).judge(store, [first], store.trials)) == [(first, "rule at step 1, score 0.1")]
    assert [curve[-1] for curve, _ in ASKED] == [(0, 0.4), (1, 0.1)]


def test_what_came_while_no_driver_ran_is_judged_by_the_next_and_nothing_twice(store):
    first, _ = store.trials
    record(store, first, 0.4)
    assert not list(stopping(0.2).judge(store, [first], store.trials))
    record(store, first, 0.4, 0.3, 0.1, 0.3)
    ASKED.clear()
    assert list(stopping(0.2).judge(store, [first], store.trials)) == [(first, "rule at step 2, score 0.1")]
    assert [curve[-1][0] for curve, _ in ASKED] == [1, 2]


def test_a_decision_that_a_kill_kept_from_being_carried_out_is_made_again(store):
    first, _ = store.trials
    record(store, first, 0.1)
    judged = stopping(0.15).judge(store, [first], store.trials)
    assert next(judged)[0] == first
    judged.close()  # the driver is gone before it has asked the trial to stop
    assert [trial for trial, _ in stopping(0.15).judge(store, [first], store.trials)] == [first]


def test_a_trial_of_a_driver_that_died_is_judged_too(tmp_path):
    """Although another process (here this one) holds the trial, it is asked to stop."""
    planned, about = stub.plan(GOOD)
    store = Store.create(tmp_path / "s", planned, about)
    (orphan,) = store.trials
    record(store, orphan, -1.0)
    (store.folder(orphan) / "run.json").write_text(json.dumps({"run_id": orphan.id}))

    class Watch(stub.Quiet):
        def look(self, states):
            if asked := store.asked_to_stop(orphan):
                store.settle(orphan, *asked)
                held.__exit__(None, None, None)

    held = store.claim(orphan)
    held.__enter__()
    counts = stub.drive(
        store, stub.Stub(), stub.Terms(), watch=Watch(str), prepare=lambda _: None, stopping=stopping(-0.9)
    )
    assert counts == {"pruned": 1}


def test_a_trial_that_is_given_up_ends_and_the_others_go_on(tmp_path):
    # the stub's score falls with the learning rate: -0.2 a step for the slow one, which does not end by itself
    store, counts = sweep(tmp_path / "s", SLOW, GOOD, stopping=stopping(-0.9), timeout=300.0)
    assert counts == {"pruned": 1, "done": 1}
    slow = store.trials[0]
    assert store.state(slow).reason.startswith("rule at step ")


def misspelt(curve, other) -> bool:
    """A rule that reads what there is not."""
    return bool(other)


def test_a_rule_that_reads_what_is_not_there_is_refused_before_the_first_trial():
    dovetail.register("early_stopping", "misspelt", misspelt)
    said = (
        r"early_stopping\.misspelt of .* reads 'other'; there are curve, others, total_steps\. Did you mean 'others'\?"
        r" \[.*test_stopping\.py:\d+\]"
    )
    with pytest.raises(ConfigError, match=said):
        load_experiment("sweep", None, ["sweep.early_stopping=misspelt"])

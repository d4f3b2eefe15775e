"""Claims that are malformed: one message about the first, and no check that trips over them."""

import re

import pytest

import dovetail
from dovetail.registry import Component, Origin
from dovetail_kit.conformance.check import applicable
from dovetail_kit.conformance.malformed import fault_of
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.verdict import judge

GOOD, BAD = {"completions": "a", "answer": "b"}, {"completions": "c", "answer": "b"}


HERE = Origin("acme", "1", __name__)


def answering(**claims):
    @dovetail.declares(**claims)
    def last(completions, *, words: int = 1):
        """The last `words` words of completions that begin with ~."""
        return [" ".join(each.split()[-words:]) if each.startswith("~") else None for each in completions]

    return Component(kind="answer", name="last", target=last, origin=HERE)


def claiming(kind="reward", **claims):
    @dovetail.declares(own=claims)
    def target(completions, answer, *, width: float = 1.0):
        """How near completions are to the answer, over width."""
        return [0.0 for _ in completions]

    return Component(kind=kind, name="target", target=target, origin=Origin("acme", "1", __name__))


def test_what_follows_from_the_text_of_an_example_is_not_part_of_it():
    pair = GOOD | {"ends": [1]}, BAD
    assert fault_of(claiming("reward", examples=[pair])) == ""
    said = fault_of(claiming("process_reward", examples=[pair]))
    assert said.startswith("examples[0] has 'ends', which follow from the text")


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"examples": [GOOD, BAD]}, r"examples\[0\] is {'completions': 'a', .*}, not a pair of records, each a dict"),
        ({"examples": GOOD}, r"examples={'completions': 'a', .*} is not a list of pairs of records"),
        ({"examples": [(GOOD, BAD), (GOOD, BAD, BAD)]}, r"examples\[1\] is \(.*\), not a pair of records"),
        (
            {"examples": [({"completion": "a"}, BAD)]},
            r"examples\[0\] has a record without 'completions'\. Did you mean 'completion'\? Columns: completion",
        ),
        ({"examples": [({"answer": "b"}, BAD)]}, r"examples\[0\] has a record without 'completions'\. Columns: answer"),
        ({"abstains": "yes"}, "abstains='yes' is not True or False: gives no score where"),
        ({"any_answer": 1}, "any_answer=1 is not True or False"),
        ({"range": (1, 0)}, r"range=\(1, 0\) is not the lowest and the highest score, two numbers in this order"),
        ({"range": (0, 0.5, 1)}, "is not the lowest and the highest score"),
        ({"range": ("0", "1")}, "is not the lowest and the highest score"),
        ({"range": 1}, "range=1 is not the lowest and the highest score"),
        ({"settings": {"witdh": 3.0}}, "settings names 'witdh', which is not a hyperparameter. Did you mean 'width'"),
        ({"settings": ["width"]}, r"settings=\['width'\] is not a dict of hyperparameters"),
        ({"idle": ("wide",)}, "idle names 'wide', which is not a hyperparameter"),
        ({"excludes": "kl"}, "excludes='kl' is not a tuple of names"),
        ({"expected_failures": ["padding"]}, r"expected_failures=\['padding'\] is not a dict of reasons"),
        ({"expected_failures": {"docstring": None}}, "is not a dict of reasons"),
    ],
)
def test_one_check_says_so_and_the_others_are_skipped(claims, said):
    component = claiming(**claims)
    verdicts = {check.name: judge(check, Subject(component)) for check in applicable(component)}
    failed = verdicts.pop("declarations")
    assert failed.outcome == "failed"
    assert re.search(said, failed.seen)
    assert {(each.outcome, each.seen) for each in verdicts.values()} == {
        ("skipped", "its claims are malformed: see 'declarations'")
    }


@pytest.mark.parametrize("claims", [{"examples": ["Answer: B", "(C)"]}, {"examples": "Answer: B"}])
def test_of_an_answer_too(claims):
    component = answering(**claims)
    verdicts = {check.name: judge(check, Subject(component)) for check in applicable(component)}
    assert [name for name, verdict in verdicts.items() if verdict.outcome == "failed"] == ["declarations"]
    assert "of records" in verdicts["declarations"].seen


@pytest.mark.slow
def test_the_examples_of_an_answer_are_read():
    """Its own form is known to nobody else, so that without them no number of it could be checked."""
    found = {}
    for claims in ({}, {"examples": [({"completions": "~1 2 3"}, {"completions": "~7 8 9"})]}):
        component = answering(own=claims)
        verdicts = {check.name: judge(check, Subject(component)) for check in applicable(component)}
        assert verdicts["declarations"].outcome == "passed", verdicts["declarations"].seen
        found[bool(claims)] = verdicts["every_number_counts"]
    assert found[False].seen == "all texts that are known here get the same: declare examples"
    assert found[True].outcome == "passed"


def test_the_form_for_an_answer_is_two_answers():
    component = answering(examples=["It is 42."])
    (check,) = (each for each in applicable(component) if each.name == "declarations")
    assert "({'completions': 'It is 42.', ...}, {'completions': 'so 7', ...})" in judge(check, Subject(component)).seen


def test_it_cannot_be_expected():
    component = claiming(range=(1, 0), expected_failures={"declarations": "they are what they are"})
    (check,) = (each for each in applicable(component) if each.name == "declarations")
    assert judge(check, Subject(component)).outcome == "failed"


@pytest.mark.parametrize(
    "claims",
    [
        {"examples": [(GOOD, BAD), [GOOD, BAD | {"prompts": "What?"}]], "range": (0, 1.0), "abstains": False},
        {"examples": (), "range": [float("-inf"), 0], "settings": {"width": 2.0}, "excludes": ["kl"]},
        {"proofs": 3},
    ],
)
def test_what_is_well_formed(claims):
    assert fault_of(claiming(**claims)) == ""


def test_the_claim_of_another_kind_is_not_looked_at():
    assert fault_of(claiming("policy_loss", range=(1, 0))) == ""

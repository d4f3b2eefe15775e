"""The parts of a check, and the page that lists all checks."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import ClassVar

import attrs
import jax
import numpy as np
import optax
import pytest

import dovetail
from dovetail.arrays import Groups, per_token
from dovetail.errors import RunError
from dovetail.registry import Component, Origin
from dovetail.registry.declares import Claims
from dovetail_kit.conformance import stamp
from dovetail_kit.conformance.check import Failed, Inapplicable, applicable, checks
from dovetail_kit.conformance.claims import CLAIMS
from dovetail_kit.conformance.page import page
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites import texts
from dovetail_kit.conformance.suites.data import STRANGE
from dovetail_kit.conformance.unneeded import unneeded
from dovetail_kit.conformance.verdict import Verdict, judge, report

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def component(target, kind="policy_loss"):
    return Component(kind=kind, name=target.__name__, target=target, origin=Origin("acme", "1", __name__))


def test_every_check_says_what_it_claims_what_a_failure_means_and_how_to_fix_it():
    for check in checks():
        assert check.summary.endswith("."), check.name
        assert check.meaning.endswith("."), check.name
        assert check.fix.endswith("."), check.name
        assert set(check.kinds) <= set(dovetail.registry.current().kinds), check.name
        assert {check.claim, check.unless} <= {None, *CLAIMS}, check.name


@pytest.mark.parametrize("kind", dovetail.registry.current().kinds)
def test_names_are_unique_in_a_kind(kind):
    names = [check.name for check in checks(kind)]
    assert len(names) == len(set(names))
    assert {"docstring", "picklable", "resolved_dump"} <= set(names)


def test_every_claim_is_read_by_somebody():
    used = {each for check in checks() for each in (check.claim, check.unless)}
    sources = [path for folder in ("core", "plugins") for path in (ROOT / folder).rglob("*.py")]
    text = "\n".join(path.read_text() for path in sources if path.name != "claims.py")
    assert [name for name in CLAIMS if name not in used and f'"{name}"' not in text] == []


def test_every_claim_has_a_type():
    assert set(CLAIMS) == {*Claims.__annotations__, "settings", "expected_failures"}


def test_a_misspelt_claim_is_refused_where_it_is_made_and_where_it_is_registered():
    with pytest.raises(TypeError, match=r"no claim 'pesimistic'. Did you mean 'pessimistic'\?"):
        dovetail.declares(pesimistic=True)

    @attrs.frozen(kw_only=True)
    class Engine:
        declares: ClassVar = {"batch_invariance": True}

    with pytest.raises(dovetail.DovetailError, match=r"rollout.Engine of acme 1 .* 'batch_invariant'\? \[.*test_check"):
        component(Engine, "rollout").load()


def test_what_cannot_begin_without_its_server_fails_where_that_is_the_claim_and_nowhere_else():
    @attrs.frozen(kw_only=True)
    class Far:
        columns: ClassVar = ()

        def reset(self, example, rng):
            raise RunError("the server cannot begin an episode")

        def anchor(self, state):
            return state

        def step(self, state, turn, rng): ...

    far = component(Far, "interaction")
    of_episodes = [check for check in applicable(far) if check.function.__module__.endswith("suites.interactions")]
    verdicts = {check.name: judge(check, Subject(far)).outcome for check in of_episodes}
    assert verdicts.pop("is_a_function") == verdicts.pop("announces_its_columns") == "failed"
    assert {*verdicts} >= {"metrics_of_its_own", "equal_states_are_anchored_alike", "regret_is_no_luck"}
    assert {*verdicts.values()} == {"skipped"}


def test_claims_decide_what_applies():
    @dovetail.declares(on_policy_gradient=True, surrogate=True)
    def claims(logps, advantages, mask): ...

    def plain(logps, mask): ...

    names = {check.name for check in applicable(component(claims))}
    assert "on_policy_gradient" in names
    assert "finite_differences" not in names
    names = {check.name for check in applicable(component(plain))}
    assert "on_policy_gradient" not in names
    assert "finite_differences" in names
    assert "zero_advantage" not in names


@pytest.mark.parametrize(
    ("declared", "raised", "outcome"),
    [
        ({}, None, "passed"),
        ({}, Failed("4 instead of 5"), "failed"),
        ({}, Inapplicable("no file"), "skipped"),
        ({}, ZeroDivisionError("oops"), "failed"),
        ({"it": "known"}, Failed("4 instead of 5"), "known"),
        ({"it": "known"}, None, "failed"),
    ],
)
def test_outcomes(declared, raised, outcome):
    @dovetail.declares(expected_failures=declared)
    def target(logps, mask): ...

    def function(subject):
        if raised:
            raise raised

    check = checks()[0]
    verdict = judge(attrs.evolve(check, name="it", function=function), Subject(component(target)))
    assert verdict.outcome == outcome
    if isinstance(raised, ZeroDivisionError):
        assert verdict.seen.startswith("ZeroDivisionError: oops [")


def test_an_error_of_the_component_carries_its_own_place():
    from tests.kit.conformance import mutants_others

    (check,) = (each for each in checks("reward") if each.name == "odd_answers")
    verdict = judge(check, Subject(component(mutants_others.strips_a_number, "reward")))
    line = inspect.getsourcelines(mutants_others.strips_a_number)[1] + 3
    assert verdict.seen == f"AttributeError: 'int' object has no attribute 'strip' [{mutants_others.__file__}:{line}]"


def test_the_page_lists_every_check():
    assert (DOCS / "conformance.md").read_text() == page((DOCS / "conformance.md").read_text())


def test_a_distribution_that_is_not_there():
    with pytest.raises(dovetail.DovetailError, match="no distribution 'nothing-at-all' is installed"):
        stamp.hash_of("nothing-at-all")
    assert stamp.read("nothing-at-all").state == "none"


def test_what_weighs_long_completions_more_on_purpose_is_offered_a_claim_that_is_true():
    from tests.kit.conformance import mutants_turned

    (check,) = (each for each in checks("loss_agg") if each.name == "longer_is_no_heavier")
    subject = Subject(component(mutants_turned.by_the_power_of_the_length, "loss_agg"))
    said = report(check, subject, judge(check, subject))
    assert "If long completions are to weigh more, declare expected_failures={'longer_is_no_heavier': 'why'}" in said
    assert "unless:" not in said
    assert said.count("expected_failures=") == 1


def test_what_is_right_although_a_check_refuses_it_is_told_what_to_declare():
    (check,) = (each for each in checks("policy_loss") if each.name == "padding")
    subject = Subject(component(lambda logps, mask: logps, "policy_loss"))
    meant = "  meant:   if it is right as it is, it declares expected_failures={'padding': 'why'}"
    assert meant in report(check, subject, Verdict(outcome="failed", seen="0 instead of 1")).splitlines()
    assert "meant:" not in report(check, subject, Verdict(outcome="failed", seen="ValueError: no", raised=True))


def test_a_number_that_does_nothing_is_refused_with_the_data_on_which_it_was_tried():
    def patient(curve, *, most: int = 4):
        return len(curve) > 9

    def squared(logps, ref_logps, *, scale: float = 1.0):
        return (logps - ref_logps) ** 2

    for target, kind, data in (
        (
            patient,
            "early_stopping",
            r"'most' = 4 can be changed to .* unseen, on curves of up to 20 values at the steps",
        ),
        (
            squared,
            "kl",
            r"'scale' = 1 can be changed to .* unseen, on batches of 8 .* ref_logps from -[\d.]+ to -[\d.]+",
        ),
    ):
        (check,) = (each for each in checks(kind) if each.name == "every_number_counts")
        assert re.match(data, judge(check, Subject(component(target, kind))).seen)


def test_the_ranges_of_whole_numbers_and_of_what_is_true_or_false_are_told_too():
    def few_calls(mask, tool_calls, truncated, *, most: int = 40):
        return mask & ((tool_calls <= 40) & ~truncated)[:, None]

    (check,) = (each for each in checks("completion_filter") if each.name == "every_number_counts")
    seen = judge(check, Subject(component(few_calls, "completion_filter"))).seen
    assert re.search(r"'most' = 40 .* tool_calls from 0 to \d+, truncated true (nowhere|in \d+ % of the places)$", seen)


def test_the_text_that_takes_long_is_named_also_where_a_reward_catches_everything(monkeypatch):
    def careless(completions):
        found = []
        for text in completions:
            try:
                while text.count(",") > 1000:
                    pass
                found.append(float(len(text)))
            except Exception:
                found.append(0.0)
        return found

    monkeypatch.setattr(texts, "SECONDS", 0.4)
    (check,) = (each for each in checks("reward") if each.name == "hostile_texts")
    seen = judge(check, Subject(component(careless, "reward"))).seen
    assert seen.startswith("the hostile texts take more than 0.4 s of processor time, most of it for 'commas', '<reas")


@attrs.frozen(kw_only=True)
class Drawn:
    """Sums that are drawn independently of one another from a stock.

    Args:
        train_size: examples of `train`.
        stock: different sums.
    """

    declares: ClassVar = {"repeats": True}
    columns: ClassVar = ("answer",)

    train_size: int = 20
    stock: int = 1000

    def corpus(self):
        return ["1 + 1 ="]

    def examples(self, split):
        numbers = np.random.default_rng(8).integers(0, self.stock, self.train_size if split == "train" else 0)
        return [{"prompt": f"{number} + 1 =", "answer": str(number + 1)} for number in numbers.tolist()]


def test_a_claim_that_other_numbers_need_is_not_called_unneeded():
    @dovetail.declares(not_monotone=True)
    def averse(scores, group_ids, mask, *, aversion: float = 0.0):
        """d - aversion · d², d the deviation of scores from the mean of group_ids."""
        deviation = Groups.of(group_ids, mask).deviations(scores)
        return per_token(deviation - aversion * deviation**2, mask)

    assert list(unneeded(Subject(component(averse, "advantage")))) == []


def test_that_examples_may_come_twice_is_not_called_unneeded_where_they_do_in_a_larger_split():
    drawn = component(Drawn, "task")
    assert list(unneeded(Subject(drawn))) == []
    (said,) = unneeded(Subject(drawn, {"stock": 2**40}))
    assert said.startswith("repeats=True may be left out")


@pytest.mark.parametrize(
    ("reward", "why"),
    [("match_format_exactly", "it reads no column `answer`"), ("code", "it starts a process for each text")],
)
def test_a_check_of_odd_answers_that_is_skipped_says_what_is_not_there(reward, why):
    with pytest.raises(Inapplicable, match=why):
        texts.odd_answers(Subject(dovetail.get("reward", reward)))


@attrs.frozen(kw_only=True)
class Uphill:
    """Along the gradient upwards, until the loss is infinite and the weights are not yet."""

    def __call__(self, lr):
        return optax.stateless(lambda gradient, _: jax.tree.map(lambda x: 1.5 * x, gradient))


@dovetail.declares(alphabet=STRANGE)
@attrs.frozen(kw_only=True)
class Spells:
    """A tokenizer that knows every character that the checks try."""

    def make(self, texts):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("target", "kind", "name", "outcome", "seen"),
    [
        (Uphill, "optimizer", "optimises", "failed", "60 steps along the gradient take the loss from 10.75 to inf"),
        (Spells, "tokenizer", "refuses_other_characters", "skipped", "its alphabet has all of '#~é"),
    ],
)
def test_a_check_says_what_it_has_seen_where_it_has_little_to_go_by(target, kind, name, outcome, seen):
    made = component(target, kind)
    (check,) = (each for each in applicable(made) if each.name == name)
    verdict = judge(check, Subject(made))
    assert (verdict.outcome, verdict.raised) == (outcome, False)
    assert verdict.seen.startswith(seen)

"""Samplers: what they ask depends on nothing but what they were opened with and told, and they find what is good."""

import math

import pytest

from dovetail.errors import ConfigError
from dovetail.registry import current
from dovetail_executor.sampler.pbt import Pbt
from dovetail_lab.kinds import Result
from dovetail_lab.sweep import Distribution

NUMBERS = {
    "train.lr": Distribution("loguniform", (1e-5, 1e-2)),
    "policy_loss.ppo.epsilon_low": Distribution("uniform", (0.05, 0.4)),
}
MIXED = NUMBERS | {
    "train.epochs": Distribution("int", (1, 4)),
    "train.policy_loss": Distribution("choice", ("ppo", "gspo")),
}


def open_study(name: str, space, draws=30, **params):
    if name in ("tpe", "cma_es", "gp"):
        pytest.importorskip("optuna")
    if name == "gp":
        pytest.importorskip("torch")
    return current().get("sampler", name).bind(**params).open(space, draws=draws, seed=3, total_steps=60)


def score(values) -> float:
    """Best at a learning rate of 1e-3 and a clip ratio of 0.2."""
    return -((math.log10(values["train.lr"]) + 3) ** 2) - 4 * (values["policy_loss.ppo.epsilon_low"] - 0.2) ** 2


def asked(study, of=score) -> list:
    found = []
    while (proposal := study.ask()) is not None:
        found.append(proposal.values)
        study.tell(len(found) - 1, Result(value=of(proposal.values), curve=((1, of(proposal.values)),)))
    return found


@pytest.mark.parametrize("name", ["tpe", "cma_es", pytest.param("gp", marks=pytest.mark.slow)])
def test_what_learns_does_better_than_chance(name):
    late = asked(open_study(name, NUMBERS))[20:]
    chance = asked(open_study("random", NUMBERS))[20:]
    assert sum(map(score, late)) > sum(map(score, chance)) / 2, "half as far from the best"


def test_a_study_goes_on_after_failures_and_after_curves_that_were_cut_short():
    study = open_study("tpe", MIXED, startup=2)
    for number in range(12):
        values = study.ask().values
        assert values["train.policy_loss"] in ("ppo", "gspo")
        assert values["train.epochs"] in (1, 2, 3, 4)
        study.tell(number, [Result(value=None), Result(value=None, curve=((5, 0.1),)), Result(value=0.3)][number % 3])


def test_sobol_points_fill_each_key_evenly_and_more_begin_with_fewer():
    points = asked(open_study("sobol", NUMBERS, draws=16))
    exponents = sorted(math.log10(each["train.lr"]) for each in points)
    assert [int((exponent + 5) / 3 * 16) for exponent in exponents] == list(range(16)), "one in each sixteenth"
    assert asked(open_study("sobol", NUMBERS, draws=21))[:16] == points


@pytest.mark.parametrize("space", [MIXED, {"train.lr": NUMBERS["train.lr"]}])
def test_cma_es_says_what_it_cannot_search(space):
    with pytest.raises(ConfigError, match="sampler 'cma_es' searches two numbers or more"):
        open_study("cma_es", space)


def drive_population(study, worth):
    """Play a population whose members get better by what their settings are worth; return the proposals by round."""
    rounds, results = [], {}
    while (proposal := study.ask()) is not None:
        batch = [proposal]
        while (proposal := study.ask()) is not None:
            batch.append(proposal)
        numbers = range(sum(map(len, rounds)), sum(map(len, rounds)) + len(batch))
        for number, each in zip(numbers, batch, strict=True):
            before = each.copies if each.copies is not None else each.goes_on_with
            results[number] = worth(each.values) + (results[before] if before is not None else 0.0)
        for number in reversed(numbers):
            study.tell(number, Result(value=results[number], curve=((1, results[number]),)))
        rounds.append(batch)
    return rounds


def test_a_population_replaces_its_worst_by_copies_of_its_best():
    rounds = drive_population(open_study("pbt", NUMBERS, draws=8, interval=20), score)
    assert [[each.until for each in batch] for batch in rounds] == [[20] * 8, [40] * 8, [None] * 8]
    first, second, _ = rounds
    ranked = sorted(range(8), key=lambda number: -score(first[number].values))
    copies = [each for each in second if each.copies is not None]
    assert second[:2] == copies, "those that copy come before those whose weights they need go on"
    assert {each.instead_of for each in copies} == set(ranked[-2:])
    assert {each.copies for each in copies} <= set(ranked[:2])
    assert {each.goes_on_with for each in second[2:]} == set(ranked[:6])
    for each in copies:
        parent = first[each.copies]
        assert each.seed == parent.seed, "the seed goes with the weights"
        assert each.values != parent.values


def test_a_member_that_failed_is_replaced_and_a_population_that_failed_ends():
    study = open_study("pbt", NUMBERS, draws=4, interval=20)
    for number in range(4):
        assert study.ask().seed == number
        study.tell(number, Result(value=0.5, curve=((1, 0.5),)) if number == 2 else Result(value=None))
    assert [(each.copies, each.instead_of) for each in (study.ask(), study.ask(), study.ask())] == [
        (2, 0),
        (2, 1),
        (2, 3),
    ]
    assert study.ask().goes_on_with == 2
    study = open_study("pbt", NUMBERS, draws=4, interval=20)
    for number in range(4):
        study.ask()
        study.tell(number, Result(value=None))
    assert study.ask() is None


def test_the_only_member_that_is_left_goes_on_even_if_it_has_diverged():
    """Of two members the first fails, and the last value of the other is not finite."""
    study = Pbt(quantile=0.5, interval=20).open(NUMBERS, draws=2, seed=0, total_steps=60)
    for result in (Result(value=None), Result(value=None, curve=((1, 0.5),))):
        study.ask()
        study.tell(study._asked - 1, result)
    assert [(each.copies, each.instead_of, each.goes_on_with) for each in (study.ask(), study.ask())] == [
        (1, 0, None),
        (None, None, 1),
    ]


def test_numbers_are_moved_by_the_factor_and_stay_in_their_range():
    study = Pbt(resample=0.0, interval=20).open(MIXED, draws=4, seed=0, total_steps=60)
    for index in range(50):
        assert study._perturbed("train.lr", MIXED["train.lr"], 1e-3, index) in (1.2e-3, 0.000833333)
        assert study._perturbed("train.lr", MIXED["train.lr"], 1e-2, index) in (1e-2, 0.00833333)
        assert study._perturbed("train.epochs", MIXED["train.epochs"], 2, index) in (1, 3)
        assert study._perturbed("train.policy_loss", MIXED["train.policy_loss"], "ppo", index) in ("ppo", "gspo")


@pytest.mark.parametrize(
    ("params", "draws", "said"),
    [
        ({}, 3, "of 3 members, a share of 0.25 is none; draw 4 or more"),
        ({"interval": 60}, 8, "sampler.pbt.interval = 60 is not below train.steps = 60"),
    ],
)
def test_a_population_in_which_nobody_could_be_replaced_is_refused(params, draws, said):
    with pytest.raises(ConfigError) as caught:
        open_study("pbt", NUMBERS, draws=draws, **params)
    assert said in str(caught.value)

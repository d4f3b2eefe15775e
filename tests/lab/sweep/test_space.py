"""The settings in a space, their order, and the errors for spaces that do not make sense."""

import math

import pytest

from dovetail.errors import ConfigError
from dovetail_lab.sweep import Distribution, Exclusion, Space, parse_axes, parse_random, parse_seeds
from dovetail_lab.sweep.distributions import uniform01


def drawn(draws: int, **others: str) -> list[tuple[str, ...]]:
    random = {key.replace("_", "."): Distribution.parse(text, key) for key, text in others.items()}
    return [point.overrides for point in Space(random=random, draws=draws).points()]


def test_a_grid_is_every_combination():
    space = Space(grid={"a.b": (1, 2), "a.c": ("x", "y")})
    assert [point.overrides for point in space.points()] == [
        ("a.b=1", "a.c='x'"),
        ("a.b=1", "a.c='y'"),
        ("a.b=2", "a.c='x'"),
        ("a.b=2", "a.c='y'"),
    ]


def test_zipped_values_advance_together_and_cross_with_the_rest():
    space = Space(grid={"a.b": (1, 2)}, zip={"a.c": (3, 4), "a.d": (5, 6)})
    assert [point.overrides for point in space.points()] == [
        ("a.b=1", "a.c=3", "a.d=5"),
        ("a.b=1", "a.c=4", "a.d=6"),
        ("a.b=2", "a.c=3", "a.d=5"),
        ("a.b=2", "a.c=4", "a.d=6"),
    ]


def test_seeds_vary_slowest_so_that_an_abort_leaves_whole_comparisons():
    points = Space(grid={"a.b": (1, 2)}, seeds=(7, 8)).points()
    assert [point.seed for point in points] == [7, 7, 8, 8]


def test_more_draws_keep_those_that_were_there():
    twenty, forty = drawn(20, a_b="loguniform(1e-6, 1e-3)"), drawn(40, a_b="loguniform(1e-6, 1e-3)")
    assert forty[:20] == twenty
    assert len(set(forty)) == 40


def test_a_draw_does_not_depend_on_what_else_is_drawn():
    alone, beside = drawn(5, a_b="uniform(0, 1)"), drawn(5, a_a="int(1, 9)", a_b="uniform(0, 1)")
    assert [each[-1] for each in beside] == [each[0] for each in alone]


def test_numbers_from_counters_are_uniform():
    numbers = [uniform01(0, "train.lr", index) for index in range(4000)]
    assert all(0 <= number < 1 for number in numbers)
    assert abs(sum(numbers) / 4000 - 0.5) < 4 * math.sqrt(1 / 12 / 4000)
    counts = [sum(int(number * 10) == cell for number in numbers) for cell in range(10)]
    assert sum((each - 400) ** 2 / 400 for each in counts) < 27.9  # chi-squared, 9 degrees of freedom, p = 0.001


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("uniform(2, 3)", lambda x: 2 <= x <= 3),
        ("loguniform(1e-5, 1e-2)", lambda x: 1e-5 <= x <= 1e-2),
        ("int(2, 4)", lambda x: x in (2, 3, 4) and type(x) is int),
        ("choice(ppo, gspo)", lambda x: x in ("ppo", "gspo")),
    ],
)
def test_draws_stay_in_their_range(text, allowed):
    form = Distribution.parse(text, "a.b")
    values = [form.draw(0, "a.b", index) for index in range(200)]
    assert all(map(allowed, values))
    assert len(set(values)) > 1


def test_log_uniform_draws_have_their_median_in_the_geometric_middle():
    form = Distribution("loguniform", (1e-6, 1e-2))
    values = sorted(form.draw(0, "k", index) for index in range(2001))
    assert abs(math.log10(values[1000]) + 4) < 0.15


def test_exclusions_leave_out_what_meets_all_conditions():
    rule = Exclusion.parse("train.lr>=1e-3,train.policy_loss=ppo,gspo")
    space = Space(grid={"train.lr": (1e-4, 1e-3), "train.policy_loss": ("ppo", "grpo")}, exclude=(rule,))
    assert [point.overrides for point in space.points()] == [
        ("train.lr=0.0001", "train.policy_loss='ppo'"),
        ("train.lr=0.0001", "train.policy_loss='grpo'"),
        ("train.lr=0.001", "train.policy_loss='grpo'"),
    ]


def test_an_exclusion_that_leaves_nothing_out_is_told():
    space = Space(grid={"a.b": (1, 2)}, exclude=(Exclusion.parse("a.b=3"),))
    assert space.idle_exclusions() == ["a.b=3"]


def test_axes_are_read_from_a_command_line():
    assert parse_axes("a=1,2,b=(1, 2),x", "--zip") == {"a": (1, 2), "b": ((1, 2), "x")}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Space(grid={"a.b": (1,)}, zip={"a.b": (1,)}), "'a.b' is in two of grid, zip and random"),
        (lambda: Space(zip={"a.b": (1, 2), "a.c": (1,)}), "as many values each, but have a.b 2, a.c 1"),
        (lambda: Space(grid={"a.b": ()}), "the space has no points: an axis has no values"),
        (lambda: Space(grid={"run.seed": (1,)}), "'run.seed' is varied with --seeds"),
        (lambda: Space(grid={"run.folder": ("a",)}), "'run.folder' cannot be varied"),
        (lambda: Space(draws=3), "random: it says how many points to draw, but not of what"),
        (
            lambda: Space(grid={"train.lr": (1,)}, exclude=(Exclusion.parse("train.lrr=1"),)),
            "'train.lrr' is not varied. Did you mean 'train.lr'?",
        ),
        (
            lambda: Space(grid={"a.b": (1,)}, exclude=(Exclusion.parse("a.b=1"),)).points(),
            "the space has no points: the exclusions leave none of 1",
        ),
        (lambda: Space(grid={f"a.b{i}": (1, 2, 3, 4) for i in range(12)}).points(), "has 16,777,216 points"),
        (lambda: Exclusion.parse("a.b"), "exclude a.b: 'a.b' is not a condition"),
        (lambda: Distribution.parse("logunifrom(1, 2)", "a.b"), "Did you mean 'loguniform'?"),
        (lambda: Distribution.parse("loguniform(0, 2)", "a.b"), "both ends must be above 0"),
        (lambda: Distribution.parse("uniform(2, 1)", "a.b"), "the lowest, 2, is not below the highest, 1"),
        (lambda: Distribution.parse("int(1.5, 2)", "a.b"), "needs two whole numbers"),
        (lambda: Distribution.parse("choice()", "a.b"), "name at least one option"),
        (lambda: parse_axes("1,2", "--grid"), "--grid 1,2: write key=value,value"),
        (lambda: parse_axes("a=1,a=2", "--grid"), "'a' is there twice"),
        (lambda: parse_axes("a=%lr", "--grid"), "a macro, %lr, cannot be varied"),
        (lambda: parse_axes("a=[1", "--grid"), "--grid a: syntax error"),
        (lambda: parse_random(["train.lr=uniform(0,1)"]), "write a number of draws, then key=distribution"),
        (lambda: parse_random(["5", "train.lr"]), "'train.lr' is not key=distribution"),
        (lambda: parse_seeds("a"), "seeds 'a': write a number of seeds"),
        (lambda: parse_seeds("3:3"), "seeds '3:3': there are none"),
        (lambda: parse_seeds("1,1"), "one of them is there twice"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(make, said):
    with pytest.raises(ConfigError) as caught:
        make()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("form", "arguments"),
    [("choice", ("a", "b")), ("int", (1, 3)), ("uniform", (0.1, 0.2)), ("loguniform", (1e-4, 1e-2))],
)
def test_the_whole_share_is_the_highest_value(form, arguments):
    distribution = Distribution(form, arguments)
    assert (distribution.at(0.0), distribution.at(1.0)) == (arguments[0], arguments[-1])
